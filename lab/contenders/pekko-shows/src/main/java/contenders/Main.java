package contenders;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pekko.actor.typed.ActorSystem;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.apache.pekko.cluster.sharding.typed.javadsl.ClusterSharding;
import org.apache.pekko.cluster.sharding.typed.javadsl.Entity;
import org.apache.pekko.cluster.sharding.typed.javadsl.EntityRef;
import org.apache.pekko.cluster.typed.Cluster;
import org.apache.pekko.cluster.typed.Join;
import org.apache.pekko.http.javadsl.Http;
import org.apache.pekko.http.javadsl.model.ContentTypes;
import org.apache.pekko.http.javadsl.model.HttpEntities;
import org.apache.pekko.http.javadsl.model.HttpMethods;
import org.apache.pekko.http.javadsl.model.HttpRequest;
import org.apache.pekko.http.javadsl.model.HttpResponse;
import org.apache.pekko.http.javadsl.model.StatusCode;
import org.apache.pekko.http.javadsl.model.StatusCodes;
import org.apache.pekko.persistence.jdbc.testkit.javadsl.SchemaUtils;

/** Shows over HTTP: Pekko persistence in PostgreSQL, sharded as in the original, on one node. */
public final class Main {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Duration PATIENCE = Duration.ofSeconds(5);
  private static final long BODY_PATIENCE_MILLIS = 5_000;
  private static final Pattern SEAT = Pattern.compile("/shows/([^/]+)/seats/(\\d{1,9})");
  private static final Pattern SHOW = Pattern.compile("/shows/([^/]+)");

  private final ActorSystem<Void> system;
  private final ClusterSharding sharding;

  private Main(ActorSystem<Void> system) {
    this.system = system;
    this.sharding = ClusterSharding.get(system);
    sharding.init(Entity.of(Show.KEY, context -> Show.create(context.getEntityId())));
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
    ActorSystem<Void> system = ActorSystem.create(Behaviors.empty(), "shows");
    SchemaUtils.createIfNotExists(system).toCompletableFuture().get(60, TimeUnit.SECONDS);
    Cluster cluster = Cluster.get(system);
    cluster.manager().tell(Join.create(cluster.selfMember().address()));
    Main main = new Main(system);
    Http.get(system).newServerAt("127.0.0.1", port).bind(main::answer);
  }

  private CompletionStage<HttpResponse> answer(HttpRequest request) {
    // A base URL that ends in a slash doubles it.
    String path = request.getUri().path().replaceFirst("^/+", "/");
    if (path.equals("/shows") && request.method().equals(HttpMethods.POST)) {
      return json(request, this::create);
    }
    Matcher seat = SEAT.matcher(path);
    if (seat.matches() && request.method().equals(HttpMethods.PATCH)) {
      int number = Integer.parseInt(seat.group(2));
      return json(request, body -> change(seat.group(1), number, body));
    }
    Matcher show = SHOW.matcher(path);
    if (show.matches() && request.method().equals(HttpMethods.GET)) {
      return isId(show.group(1)) ? view(show.group(1)) : now(StatusCodes.BAD_REQUEST, "The id is no UUID.");
    }
    request.discardEntityBytes(system);
    return now(StatusCodes.NOT_FOUND, "");
  }

  private interface Handler {
    CompletionStage<HttpResponse> handle(JsonNode body);
  }

  private CompletionStage<HttpResponse> json(HttpRequest request, Handler handler) {
    if (!request.entity().getContentType().equals(ContentTypes.APPLICATION_JSON)) {
      request.discardEntityBytes(system);
      return now(StatusCodes.UNSUPPORTED_MEDIA_TYPE, "Send application/json.");
    }
    return request
        .entity()
        .toStrict(BODY_PATIENCE_MILLIS, system)
        .thenCompose(
            body -> {
              try {
                return handler.handle(JSON.readTree(body.getData().toArrayUnsafe()));
              } catch (IOException notJson) {
                return now(StatusCodes.BAD_REQUEST, "The body is no JSON.");
              }
            });
  }

  private CompletionStage<HttpResponse> create(JsonNode body) {
    String id = body.path("showId").asText();
    if (!isId(id) || !body.path("maxSeats").isInt()) {
      return now(StatusCodes.BAD_REQUEST, "showId must be a UUID and maxSeats a number.");
    }
    String title = body.path("title").asText();
    int seats = body.path("maxSeats").asInt();
    return show(id)
        .<Show.Outcome>ask(replyTo -> new Show.Create(title, seats, replyTo), PATIENCE)
        .thenCompose(
            outcome -> {
              if (outcome.error() == null) {
                return now(StatusCodes.CREATED, "Show created");
              }
              return outcome.error() == Show.Error.SHOW_ALREADY_EXISTS
                  ? now(StatusCodes.CONFLICT, "Show already created")
                  : now(StatusCodes.BAD_REQUEST, "Show creation failed with: " + outcome.error());
            });
  }

  private CompletionStage<HttpResponse> change(String id, int seat, JsonNode body) {
    String action = body.path("action").asText();
    boolean reserves = action.equals("RESERVE");
    if (!isId(id) || !(reserves || action.equals("CANCEL_RESERVATION"))) {
      return now(StatusCodes.BAD_REQUEST, "The id must be a UUID, the action RESERVE or CANCEL_RESERVATION.");
    }
    CompletionStage<Show.Outcome> asked =
        reserves
            ? show(id).ask(replyTo -> new Show.Reserve(seat, replyTo), PATIENCE)
            : show(id).ask(replyTo -> new Show.Cancel(seat, replyTo), PATIENCE);
    return asked.thenCompose(
        outcome ->
            outcome.error() == null
                ? now(StatusCodes.ACCEPTED, action + " successful")
                : now(StatusCodes.BAD_REQUEST, action + " failed with: " + outcome.error()));
  }

  private CompletionStage<HttpResponse> view(String id) {
    return show(id)
        .<Show.View>ask(Show.Get::new, PATIENCE)
        .thenCompose(
            view -> {
              if (view.state() == null) {
                return now(StatusCodes.NOT_FOUND, "");
              }
              byte[] text = written(view.state());
              return CompletableFuture.completedFuture(
                  HttpResponse.create().withEntity(HttpEntities.create(ContentTypes.APPLICATION_JSON, text)));
            });
  }

  private static byte[] written(Show.State show) {
    ObjectNode page = JSON.createObjectNode().put("id", show.id).put("title", show.title);
    ArrayNode seats = page.putArray("seats");
    for (int number = 0; number < show.reserved.length; number++) {
      String status = show.reserved[number] ? "RESERVED" : "AVAILABLE";
      seats.addObject().put("number", number).put("status", status).put("price", show.price);
    }
    return page.toString().getBytes(java.nio.charset.StandardCharsets.UTF_8);
  }

  private EntityRef<Show.Command> show(String id) {
    return sharding.entityRefFor(Show.KEY, id);
  }

  private static boolean isId(String text) {
    try {
      return UUID.fromString(text).toString().equalsIgnoreCase(text);
    } catch (IllegalArgumentException notAnId) {
      return false;
    }
  }

  private static CompletionStage<HttpResponse> now(StatusCode status, String text) {
    return CompletableFuture.completedFuture(HttpResponse.create().withStatus(status).withEntity(text));
  }
}
