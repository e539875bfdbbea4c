package throng.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.net.http.WebSocketHandshakeException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import throng.client.Failure.Problem;
import throng.client.Failure.Unreachable;

/** Commands, queries and events over one connection. It opens with the first request, and again when it was cut. Threads may share it. */
public final class Socket implements AutoCloseable {
    /** Seconds a socket may take to open, for those who follow. */
    private static final long OPEN_MAX = 30;

    /** A command of a batch. Without a body it is an empty object. */
    public record Call(String kind, String id, String command, Object body, Options options) {
        public Call(String kind, String id, String command, Object body) {
            this(kind, id, command, body, Options.NONE);
        }
    }

    /** A reply, or what the command alone would have thrown. */
    public record Outcome(JsonElement reply, Failure failure) {
        /** The reply. */
        public JsonElement orThrow() {
            if (failure != null) throw failure;
            return reply;
        }
    }

    private final Client client;
    /** Guards what follows. It is held while a connection opens: others wait for the same one. */
    private final ReentrantLock lock = new ReentrantLock();
    private Link link;
    private boolean isClosed;

    Socket(Client client) {
        this.client = client;
    }

    /** Ends it; what waits for an answer fails. */
    @Override
    public void close() {
        lock.lock();
        try {
            isClosed = true;
            if (link != null) link.end();
        } finally {
            lock.unlock();
        }
    }

    /** Runs a command; returns its reply. */
    public JsonElement command(String kind, String id, String command, Object body, Options options) {
        return batch(List.of(new Call(kind, id, command, body, options)), options).get(0).orThrow();
    }

    public JsonElement command(String kind, String id, String command, Object body) {
        return command(kind, id, command, body, Options.NONE);
    }

    /** Runs commands in their order, many in a frame. Of the options here the timeout counts, which is one for all. */
    public List<Outcome> batch(List<Call> calls, Options options) {
        var asked = new ArrayList<JsonObject>();
        for (var call : calls) {
            var message = message("command", call.kind, call.id);
            message.addProperty("command", call.command);
            message.add("body", Json.body(call.body));
            if (!call.options.isKeyless()) message.addProperty("key", call.options.key() == null ? UUID.randomUUID().toString() : call.options.key());
            if (call.options.traceparent() != null) message.addProperty("traceparent", call.options.traceparent());
            asked.add(message);
        }
        return ask(asked, options, calls.stream().noneMatch(call -> call.options.isKeyless()));
    }

    /** Asks a query, {@code view} among them. It shows all commands sent before it. */
    public JsonElement query(String kind, String id, String query, Object arguments, Options options) {
        var message = message("query", kind, id);
        message.addProperty("query", query);
        message.add("arguments", Json.body(arguments));
        return ask(List.of(message), options, true).get(0).orThrow();
    }

    /**
     * What happens to an entity, or without an id to all of a kind. {@code after}: a cursor, or {@code "start"}; null: an entity's events begin at
     * its first, a kind's at the present. {@code credit}: so many events are on their way at most. Of a kind, several events may have one cursor.
     */
    public EventStream<JsonElement> follow(String kind, String id, String after, int credit) {
        return new EventStream<>(last -> {
            var message = message("subscribe", kind, id);
            message.addProperty("credit", credit);
            if (last != null) message.addProperty("after", last);
            return open(TimeUnit.SECONDS.toNanos(OPEN_MAX)).follow(message, credit, id == null, last);
        }, after, event -> event);
    }

    private static JsonObject message(String type, String kind, String id) {
        var message = new JsonObject();
        message.addProperty("type", type);
        message.addProperty("kind", kind);
        if (id != null) message.addProperty("entity", id);
        return message;
    }

    /** Asks until each has an outcome that asking again would not change. */
    private List<Outcome> ask(List<JsonObject> asked, Options options, boolean once) {
        var outcomes = new Outcome[asked.size()];
        return Retry.retrying(options.timeout() == null ? client.settings.timeout() : options.timeout(), once, left -> {
            var end = System.nanoTime() + left;
            var open = open(left);
            var leftOver = new ArrayList<Integer>();
            var messages = new ArrayList<JsonObject>();
            for (var at = 0; at < outcomes.length; at++) {
                if (outcomes[at] != null && (outcomes[at].failure == null || Retry.isFinal(outcomes[at].failure))) continue;
                if (options.timeout() != null) asked.get(at).addProperty("timeout_ms", Math.max(1, left / 1_000_000));
                leftOver.add(at);
                messages.add(asked.get(at));
            }
            var answers = open.ask(messages, end);
            Failure again = null;
            for (var number = 0; number < answers.length; number++) {
                outcomes[leftOver.get(number)] = answers[number];
                var failure = answers[number].failure;
                if (failure != null && !Retry.isFinal(failure)) again = failure;
            }
            if (again != null) throw again;
            return List.of(outcomes);
        });
    }

    private Link open(long left) throws InterruptedException {
        var end = System.nanoTime() + left;
        if (!lock.tryLock(left, TimeUnit.NANOSECONDS)) throw new Unreachable("The socket did not open in time.", null);
        try {
            if (isClosed) throw new IllegalStateException("The socket was closed.");
            if (link != null && !link.isOver()) return link;
            var opened = new Link();
            var token = client.settings.token().get();
            var builder = client.http.newWebSocketBuilder();
            if (token == null) {
                builder.subprotocols("throng.v1");
            } else {
                var text = Base64.getUrlEncoder().withoutPadding().encodeToString(token.getBytes(StandardCharsets.UTF_8));
                builder.subprotocols("throng.v1", "throng.bearer." + text);
            }
            try {
                Client.await(builder.buildAsync(URI.create("ws" + client.url.substring("http".length()) + "/api/ws"), opened), end - System.nanoTime());
            } catch (Unreachable unreachable) {
                opened.end();
                if (!(unreachable.getCause() instanceof WebSocketHandshakeException refused) || refused.getResponse().statusCode() < 300) throw unreachable;
                var answer = refused.getResponse();
                throw Problem.of(answer.statusCode(), String.valueOf(answer.body()), answer.headers().firstValue("Retry-After").orElse(null));
            }
            link = opened;
            return link;
        } finally {
            lock.unlock();
        }
    }
}
