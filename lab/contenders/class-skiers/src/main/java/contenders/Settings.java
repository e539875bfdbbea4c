package contenders;

import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.concurrent.Executors;

/** What the processes of the pipeline are told by environment variables. */
final class Settings {
  static final String EXCHANGE = "liftride";

  private Settings() {}

  static String text(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }

  static int number(String name, int otherwise) {
    return Integer.parseInt(text(name, Integer.toString(otherwise)));
  }

  /** Each message is confirmed before its request is answered, and survives a restart of the broker. */
  static boolean confirms() {
    return Boolean.parseBoolean(text("CONFIRMS", "false"));
  }

  /** A connection whose consumers have so many threads. */
  static Connection broker(int threads) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setUri(text("BROKER", "amqp://guest:guest@127.0.0.1:5672"));
    factory.setRequestedChannelMax(2047);
    return factory.newConnection(Executors.newFixedThreadPool(threads));
  }
}
