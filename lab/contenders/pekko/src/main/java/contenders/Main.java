package contenders;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.pekko.actor.typed.ActorSystem;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.apache.pekko.http.javadsl.Http;
import org.apache.pekko.http.javadsl.model.ContentTypes;
import org.apache.pekko.http.javadsl.model.HttpEntities;
import org.apache.pekko.http.javadsl.model.HttpMethods;
import org.apache.pekko.http.javadsl.model.HttpRequest;
import org.apache.pekko.http.javadsl.model.HttpResponse;
import org.apache.pekko.http.javadsl.model.StatusCode;
import org.apache.pekko.http.javadsl.model.StatusCodes;

/** Pekko HTTP's low-level server API: its fastest, without the routing DSL. */
public final class Main {
  private static final String PREFIX = "/primes/";
  private static final JsonFactory JSON = new JsonFactory();

  private Main() {}

  public static void main(String[] arguments) {
    int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
    ActorSystem<Void> system = ActorSystem.create(Behaviors.empty(), "primes");
    Http.get(system).newServerAt("127.0.0.1", port).bindSync(Main::answer);
  }

  private static HttpResponse answer(HttpRequest request) {
    String path = request.getUri().path();
    if (!path.startsWith(PREFIX)) {
      return error(StatusCodes.NOT_FOUND, "There is nothing here.");
    }
    if (!request.method().equals(HttpMethods.GET)) {
      return error(StatusCodes.METHOD_NOT_ALLOWED, "Use GET.");
    }
    int n;
    try {
      n = Integer.parseInt(path.substring(PREFIX.length()));
    } catch (NumberFormatException notNumeric) {
      return error(StatusCodes.BAD_REQUEST, "n must be a number.");
    }
    if (n < 0 || n > Primes.MOST) {
      return error(StatusCodes.BAD_REQUEST, "n must be 0 to " + Primes.MOST + ".");
    }
    return HttpResponse.create().withEntity(HttpEntities.create(ContentTypes.APPLICATION_JSON, json(n)));
  }

  private static byte[] json(int n) {
    ByteArrayOutputStream out = new ByteArrayOutputStream(16 + 8 * n);
    try (JsonGenerator json = JSON.createGenerator(out)) {
      json.writeStartArray();
      for (String prime : Primes.first(n)) {
        json.writeString(prime);
      }
      json.writeEndArray();
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return out.toByteArray();
  }

  private static HttpResponse error(StatusCode status, String text) {
    return HttpResponse.create().withStatus(status).withEntity(text);
  }
}
