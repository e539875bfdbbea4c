package contenders;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import redis.clients.jedis.Jedis;

/** Removes what a run has left: exchange and queues at the broker, and everything in Redis. */
public final class Clear {
  private Clear() {}

  public static void main(String[] arguments) throws Exception {
    try (Connection broker = Settings.broker(1);
        Channel channel = broker.createChannel();
        Jedis redis = new Jedis(Settings.text("REDIS_HOST", "127.0.0.1"), Settings.number("REDIS_PORT", 6379))) {
      channel.queueDelete("skiers");
      channel.queueDelete("resorts");
      channel.exchangeDelete(Settings.EXCHANGE);
      redis.flushAll();
    }
    System.exit(0);
  }
}
