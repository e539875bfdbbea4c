package contenders;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.MessageProperties;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/** Takes lift rides over HTTP and publishes each to the broker, from a pool of channels. */
public final class Server extends HttpServlet {
  private static final int CHANNELS = 256;
  private static final Pattern PATH = Pattern.compile("/(\\d+)/seasons/(\\d+)/days/(\\d+)/skiers/(\\d+)");
  private static final Gson GSON = new GsonBuilder().setPrettyPrinting().create();

  private final BlockingQueue<Channel> channels = new LinkedBlockingQueue<>();
  private final boolean confirms = Settings.confirms();

  private Server(Connection broker) throws IOException {
    for (int count = 0; count < CHANNELS; count++) {
      Channel channel = broker.createChannel();
      channel.exchangeDeclare(Settings.EXCHANGE, BuiltinExchangeType.FANOUT, confirms);
      if (confirms) {
        channel.confirmSelect();
      }
      channels.add(channel);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(Files.createTempDirectory("tomcat").toString());
    Connector connector = new Connector();
    connector.setPort(Settings.number("PORT", 8080));
    connector.setProperty("address", "127.0.0.1");
    connector.setProperty("maxThreads", "256");
    connector.setProperty("maxKeepAliveRequests", "-1");
    tomcat.setConnector(connector);
    Context context = tomcat.addContext("/Server_war", new File(".").getAbsolutePath());
    Tomcat.addServlet(context, "skiers", new Server(Settings.broker(1)));
    context.addServletMappingDecoded("/skiers/*", "skiers");
    tomcat.start();
    tomcat.getServer().await();
  }

  @Override
  protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
    response.setContentType("application/json");
    Matcher path = PATH.matcher(request.getPathInfo() == null ? "" : request.getPathInfo());
    if (!path.matches()) {
      answer(response, 404, "Invalid path or parameters supplied");
      return;
    }
    JsonObject ride;
    try {
      ride = JsonParser.parseReader(request.getReader()).getAsJsonObject();
    } catch (JsonParseException | IllegalStateException unreadable) {
      answer(response, 400, "Invalid body");
      return;
    }
    JsonObject message = new JsonObject();
    String wrong = copy(ride, message, "time", 1, 420);
    wrong = wrong != null ? wrong : copy(ride, message, "liftID", 1, Integer.MAX_VALUE - 1);
    wrong = wrong != null ? wrong : copy(ride, message, "waitTime", 0, Integer.MAX_VALUE - 1);
    if (wrong != null) {
      answer(response, 400, wrong);
      return;
    }
    message.addProperty("skierID", Integer.parseInt(path.group(4)));
    message.addProperty("day", Integer.parseInt(path.group(3)));
    message.addProperty("seasonID", Integer.parseInt(path.group(2)));
    message.addProperty("resortID", Integer.parseInt(path.group(1)));
    try {
      publish(GSON.toJson(message).getBytes(StandardCharsets.UTF_8));
    } catch (Exception lost) {
      answer(response, 500, "The ride could not be published");
      return;
    }
    answer(response, 201, "Lift ride created!");
  }

  private void publish(byte[] body) throws Exception {
    AMQP.BasicProperties properties = confirms ? MessageProperties.PERSISTENT_BASIC : null;
    Channel channel = channels.take();
    try {
      channel.basicPublish(Settings.EXCHANGE, "", properties, body);
      if (confirms) {
        channel.waitForConfirmsOrDie(5_000);
      }
    } finally {
      channels.put(channel);
    }
  }

  /** Takes a parameter over; what is wrong with it, if something is. */
  private static String copy(JsonObject from, JsonObject to, String name, int least, int most) {
    JsonElement value = from.get(name);
    if (value == null || value.isJsonNull()) {
      return "Missing parameter: '" + name + "'";
    }
    try {
      int number = value.getAsInt();
      if (number >= least && number <= most) {
        to.addProperty(name, number);
        return null;
      }
    } catch (RuntimeException notNumeric) {
      // Told below.
    }
    return "Invalid value for parameter '" + name + "': " + value;
  }

  private static void answer(HttpServletResponse response, int status, String text) throws IOException {
    response.setStatus(status);
    response.getWriter().write(text);
  }
}
