package contenders;

import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.DeliverCallback;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;

/**
 * Writes rides to Redis: with the argument {@code skiers} by skier, with {@code resorts} by day. Prints how many it has written
 * whenever that has changed.
 */
public final class Consumer {
  private static final int THREADS = 128;

  private Consumer() {}

  public static void main(String[] arguments) throws Exception {
    String queue = arguments[0];
    boolean bySkier = queue.equals("skiers");
    JedisPoolConfig config = new JedisPoolConfig();
    config.setMaxTotal(THREADS);
    config.setMaxIdle(THREADS);
    config.setMaxWait(Duration.ofSeconds(2));
    JedisPool redis =
        new JedisPool(config, Settings.text("REDIS_HOST", "127.0.0.1"), Settings.number("REDIS_PORT", 6379));
    Connection broker = Settings.broker(THREADS);
    AtomicLong written = new AtomicLong();
    for (int count = 0; count < THREADS; count++) {
      consume(broker.createChannel(), queue, bySkier, redis, written);
    }
    long told = -1;
    while (true) {
      long now = written.get();
      if (now != told) {
        System.out.println(now);
        told = now;
      }
      Thread.sleep(10);
    }
  }

  private static void consume(Channel channel, String queue, boolean bySkier, JedisPool redis, AtomicLong written)
      throws Exception {
    boolean durable = Settings.confirms();
    channel.exchangeDeclare(Settings.EXCHANGE, BuiltinExchangeType.FANOUT, durable);
    channel.queueDeclare(queue, durable, false, false, null);
    channel.queueBind(queue, Settings.EXCHANGE, "");
    DeliverCallback take =
        (tag, delivery) -> {
          long number = delivery.getEnvelope().getDeliveryTag();
          JsonObject ride;
          try {
            ride = JsonParser.parseString(new String(delivery.getBody(), StandardCharsets.UTF_8)).getAsJsonObject();
          } catch (JsonParseException | IllegalStateException unreadable) {
            channel.basicReject(number, false);
            return;
          }
          String key =
              bySkier
                  ? ride.remove("skierID").getAsString()
                  : ride.remove("seasonID").getAsString() + ":" + ride.remove("day").getAsString();
          try (Jedis connection = redis.getResource()) {
            connection.sadd(key, ride.toString());
          }
          channel.basicAck(number, false);
          written.incrementAndGet();
        };
    channel.basicConsume(queue, false, take, tag -> {});
  }
}
