package throng.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpResponse.BodySubscribers;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import throng.client.Failure.Problem;
import throng.client.Failure.Unreachable;

/**
 * A client of one service. Threads may share it. Calls block, and throw a {@link Failure}. Interrupting a thread ends its call at once; what was
 * sent may take effect all the same.
 */
public class Client {
    /** Seconds without a sign of life, after which a stream is opened anew; the service gives one each 15 s. */
    private static final long SILENCE = 45;

    final String url;
    final Settings settings;
    final HttpClient http;

    public Client(String url) {
        this(url, Settings.DEFAULTS);
    }

    public Client(String url, Settings settings) {
        var parts = URI.create(url);
        if (!List.of("http", "https").contains(String.valueOf(parts.getScheme())) || parts.getHost() == null) {
            throw new IllegalArgumentException("\"" + url + "\" is no URL of a service; expected http:// or https://, and a host");
        }
        this.url = url.replaceAll("/+$", "");
        this.settings = settings;
        // In the clear it would ask for HTTP/2 with each request.
        var version = parts.getScheme().equals("http") ? HttpClient.Version.HTTP_1_1 : HttpClient.Version.HTTP_2;
        http = settings.http() == null ? HttpClient.newBuilder().version(version).build() : settings.http();
    }

    /** Runs a command; returns its reply. Without a body it is an empty object. */
    public JsonElement command(String kind, String id, String command, Object body, Options options) {
        return request("POST", path(kind, id, command), body, options);
    }

    public JsonElement command(String kind, String id, String command, Object body) {
        return command(kind, id, command, body, Options.NONE);
    }

    /** Asks a query, {@code view} among them. Arguments are a record, a map or null. */
    public JsonElement query(String kind, String id, String query, Object arguments, Options options) {
        var route = query.equals("view") ? path(kind, id) : path(kind, id, query);
        return request("GET", route + search(Json.body(arguments).getAsJsonObject()), null, options);
    }

    public JsonElement query(String kind, String id, String query) {
        return query(kind, id, query, null, Options.NONE);
    }

    /** A page of an entity's events, after a sequence number; {@code null}: from the first, as many as the service gives. */
    public JsonObject history(String kind, String id, Long after, Integer limit) {
        return request("GET", path(kind, id, "events") + page(after, limit), null, Options.NONE).getAsJsonObject();
    }

    /** A page of the entities of a kind, in the order of their ids. */
    public JsonObject list(String kind, String after, Integer limit) {
        return request("GET", path(kind) + page(after, limit), null, Options.NONE).getAsJsonObject();
    }

    /** Any route of the service: its answer as JSON. A {@code GET} has no body and no key. */
    public JsonElement request(String method, String path, Object body, Options options) {
        var reads = method.equals("GET");
        var content = reads ? BodyPublishers.noBody() : BodyPublishers.ofString(Json.GSON.toJson(Json.body(body)));
        var key = reads || options.isKeyless() ? null : options.key() == null ? UUID.randomUUID().toString() : options.key();
        return Retry.retrying(options.timeout() == null ? settings.timeout() : options.timeout(), reads || key != null, left -> {
            var request = to(path).method(method, content);
            if (!reads) request.header("Content-Type", "application/json");
            if (key != null) request.header("Idempotency-Key", key);
            if (options.traceparent() != null) request.header("traceparent", options.traceparent());
            if (options.timeout() != null) request.header("Request-Timeout", Math.max(1, left / 1_000_000) + "ms");
            var response = send(request.build(), BodyHandlers.ofString(), left);
            if (response.statusCode() < 300) return Json.parse(response.body());
            throw Problem.of(response.statusCode(), response.body(), response.headers().firstValue("Retry-After").orElse(null));
        });
    }

    /** What happens to an entity, after a cursor or the sequence number of an event, or from its first: null. */
    public EventStream<JsonElement> events(String kind, String id, String after) {
        return new EventStream<>(last -> {
            var request = to(path(kind, id, "events")).header("Accept", "text/event-stream");
            if (last != null) request.header("Last-Event-ID", last);
            var response = send(request.build(), BodyHandlers.ofPublisher(), TimeUnit.SECONDS.toNanos(SILENCE));
            if (response.statusCode() == 200) {
                var lines = new Lines();
                response.body().subscribe(BodySubscribers.fromLineSubscriber(lines, none -> null, StandardCharsets.UTF_8, "\n"));
                return lines;
            }
            var whole = BodySubscribers.ofString(StandardCharsets.UTF_8);
            response.body().subscribe(whole);
            var body = await(whole.getBody().toCompletableFuture(), TimeUnit.SECONDS.toNanos(SILENCE));
            throw Problem.of(response.statusCode(), body, response.headers().firstValue("Retry-After").orElse(null));
        }, after, event -> event);
    }

    /** A WebSocket for many commands at a time, and for what happens to a whole kind. It opens with the first request. */
    public Socket socket() {
        return new Socket(this);
    }

    private HttpRequest.Builder to(String path) {
        var request = HttpRequest.newBuilder(URI.create(url + path));
        var token = settings.token().get();
        return token == null ? request : request.header("Authorization", "Bearer " + token);
    }

    private <T> HttpResponse<T> send(HttpRequest request, BodyHandler<T> body, long left) throws InterruptedException {
        return await(http.sendAsync(request, body), left);
    }

    /** Ends what it waits for, unless that comes in time. */
    static <T> T await(CompletableFuture<T> future, long left) throws InterruptedException {
        try {
            return future.get(left, TimeUnit.NANOSECONDS);
        } catch (TimeoutException over) {
            throw new Unreachable("There was no answer in time.", over);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof Failure failure) throw failure;
            throw new Unreachable("There was no answer: " + failed.getCause(), failed.getCause());
        } finally {
            future.cancel(true);
        }
    }

    private static String path(String... parts) {
        var path = new StringBuilder("/api");
        for (var part : parts) path.append('/').append(encoded(part));
        return path.toString();
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static String page(Object after, Integer limit) {
        var fields = new JsonObject();
        if (after != null) fields.addProperty("after", after.toString());
        if (limit != null) fields.addProperty("limit", limit);
        return search(fields);
    }

    /** Fields as a query string: as JSON has them, where they are no text. */
    private static String search(JsonObject fields) {
        var text = new StringJoiner("&", "?", "").setEmptyValue("");
        for (Map.Entry<String, JsonElement> field : fields.entrySet()) {
            var value = field.getValue();
            if (!value.isJsonNull()) text.add(encoded(field.getKey()) + "=" + encoded(value.isJsonPrimitive() ? value.getAsString() : value.toString()));
        }
        return text.toString();
    }

    /** The server-sent events of a body that have an id. */
    private static final class Lines implements Flow.Subscriber<String>, EventStream.Source {
        private static final int AHEAD = 64;
        private final Inbox<String> lines = new Inbox<>(AHEAD);
        private final CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();

        @Override
        public void onSubscribe(Flow.Subscription own) {
            subscription.complete(own);
            own.request(AHEAD);
        }

        @Override
        public void onNext(String line) {
            lines.add(line);
        }

        @Override
        public void onError(Throwable error) {
            lines.end();
        }

        @Override
        public void onComplete() {
            lines.end();
        }

        @Override
        public Event<JsonElement> next() throws InterruptedException {
            for (String id = null, data = null; ; ) {
                var line = lines.take(TimeUnit.SECONDS.toNanos(SILENCE));
                if (line == null) throw new Unreachable("The stream was cut off.", null);
                subscription.join().request(1);
                if (line.startsWith("id: ")) id = line.substring("id: ".length());
                if (line.startsWith("data: ")) data = line.substring("data: ".length());
                if (!line.isEmpty()) continue;
                if (id != null && data != null) return Event.of(Json.parse(data).getAsJsonObject(), id);
                id = data = null;
            }
        }

        @Override
        public void close() {
            lines.end();
            subscription.thenAccept(Flow.Subscription::cancel);
        }
    }
}
