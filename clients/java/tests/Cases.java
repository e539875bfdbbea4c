// Runs clients/cases.json, whose first lines say what a step is, against THRONG_URL. Arguments: the file, and a part of a case's name.

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import throng.client.Client;
import throng.client.Event;
import throng.client.EventStream;
import throng.client.Failure;
import throng.client.Options;
import throng.client.Settings;
import throng.client.Socket;

public class Cases {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static final Gson GSON = new Gson();

    static JsonElement control(String demand) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(System.getenv("THRONG_CONTROL"))).timeout(PATIENCE);
        return JsonParser.parseString(HTTP.send(request.POST(BodyPublishers.ofString(demand)).build(), BodyHandlers.ofString()).body());
    }

    static JsonObject object(Object... fields) {
        var object = new JsonObject();
        for (var at = 0; at < fields.length; at += 2) object.add((String) fields[at], GSON.toJsonTree(fields[at + 1]));
        return object;
    }

    /** An outcome as the cases name it. */
    static JsonObject outcome(Callable<JsonElement> ask) throws Exception {
        try {
            return object("reply", ask.call());
        } catch (Failure.Rejection rejection) {
            return object("problem", rejection.code(), "status", rejection.status(), "rejection", rejection.rejection());
        } catch (Failure.Problem problem) {
            return object("problem", problem.code(), "status", problem.status());
        } catch (Failure.Deadline deadline) {
            return object("error", "Deadline", "may_have_happened", deadline.mayHaveHappened());
        } catch (Failure failure) {
            return object("error", failure.getClass().getSimpleName(), "message", failure.getMessage());
        }
    }

    /** Each part of {@code expected} is in {@code found}; lists are as long. */
    static void check(JsonElement found, JsonElement expected, String at) {
        if (expected instanceof JsonObject object && object.has("integer")) {
            check(new JsonPrimitive(found.getAsString()), object.get("integer"), at);
        } else if (expected instanceof JsonObject object && found instanceof JsonObject given) {
            object.asMap().forEach((name, value) -> check(given.has(name) ? given.get(name) : JsonNull.INSTANCE, value, at + "." + name));
        } else if (expected instanceof JsonArray list && found instanceof JsonArray given && list.size() == given.size()) {
            for (var number = 0; number < list.size(); number++) check(given.get(number), list.get(number), at + "." + number);
        } else if (expected instanceof JsonObject || !isSame(found, expected)) {
            throw new AssertionError(at + ": " + found + ", not " + expected);
        }
    }

    static boolean isSame(JsonElement found, JsonElement expected) {
        if (found instanceof JsonPrimitive one && expected instanceof JsonPrimitive other && one.isNumber() && other.isNumber()) {
            return one.getAsBigDecimal().compareTo(other.getAsBigDecimal()) == 0;
        }
        return found.equals(expected);
    }

    static void check(JsonElement found, JsonElement expected) {
        if (expected != null) check(found, expected, "");
    }

    static String text(JsonObject step, String name, String otherwise) {
        var value = step.get(name);
        return value == null || value.isJsonNull() ? otherwise : value.getAsString();
    }

    static Integer number(JsonObject step, String name) {
        return step.has(name) ? Integer.valueOf(step.get(name).getAsInt()) : null;
    }

    final String own;
    final Client client;
    final Socket socket;
    final Map<String, EventStream<JsonElement>> streams = new HashMap<>();
    final Map<String, FutureTask<JsonObject>> running = new HashMap<>();
    final Map<String, Thread> threads = new HashMap<>();

    Cases(int number) {
        var count = new AtomicInteger();
        own = "case-" + number;
        client = new Client(System.getenv("THRONG_URL"), Settings.DEFAULTS.token(() -> "token-" + count.incrementAndGet()));
        socket = client.socket();
    }

    JsonElement ask(JsonObject step) throws Exception {
        String kind = text(step, "kind", "account"), id = text(step, "id", own);
        var options = Options.NONE.traceparent(text(step, "traceparent", null));
        if (step.has("key")) options = step.get("key").isJsonNull() ? options.keyless() : options.key(text(step, "key", null));
        if (step.has("timeout")) options = options.timeout(Duration.ofMillis(step.get("timeout").getAsLong()));
        var overSocket = step.has("socket");
        if (step.has("command")) {
            var command = text(step, "command", null);
            return overSocket ? socket.command(kind, id, command, step.get("body"), options) : client.command(kind, id, command, step.get("body"), options);
        }
        if (step.has("query")) {
            var query = text(step, "query", null);
            return overSocket ? socket.query(kind, id, query, step.get("arguments"), options) : client.query(kind, id, query, step.get("arguments"), options);
        }
        if (step.get("history") instanceof JsonObject page) {
            return client.history(kind, id, page.has("after") ? Long.valueOf(page.get("after").getAsLong()) : null, number(page, "limit"));
        }
        if (step.get("list") instanceof JsonObject page) return client.list(kind, text(page, "after", null), number(page, "limit"));
        if (step.has("get")) return client.request("GET", text(step, "get", null), null, options);
        var calls = new ArrayList<Socket.Call>();
        for (var times = step.has("times") ? number(step, "times") : 1; times > 0; times--) {
            for (var element : step.getAsJsonArray("batch")) {
                var call = element.getAsJsonObject();
                calls.add(new Socket.Call(kind, text(call, "id", id), text(call, "command", null), call.get("body")));
            }
        }
        var each = new JsonArray();
        for (var one : socket.batch(calls, options)) each.add(outcome(one::orThrow));
        return each;
    }

    void step(JsonObject step) throws Exception {
        var as = text(step, "as", null);
        var expected = step.get("expect");
        if (step.has("control")) {
            check(control(step.get("control").toString()), expected);
        } else if (step.get("follow") instanceof JsonObject follow) {
            String kind = text(follow, "kind", "account"), id = text(follow, "id", own), after = text(follow, "after", null);
            var credit = step.has("credit") ? number(step, "credit") : 100;
            streams.put(as, step.has("socket") ? socket.follow(kind, step.has("of_kind") ? null : id, after, credit) : client.events(kind, id, after));
        } else if (step.has("take")) {
            var events = new ArrayList<Event<JsonElement>>();
            while (events.size() < number(step, "count")) {
                var event = streams.get(text(step, "take", null)).next();
                // Of those who follow a kind: the case's own.
                if (event.entity() == null || event.entity().equals(own)) events.add(event);
            }
            check(GSON.toJsonTree(events.stream().map(Event::name).toList()), step.get("names"));
            check(GSON.toJsonTree(events.stream().map(Event::seq).toList()), step.get("seqs"));
            check(GSON.toJsonTree(events), step.get("events"));
        } else if (step.has("fails")) {
            Callable<JsonElement> next = () -> object("value", streams.get(text(step, "fails", null)).next());
            if (as == null) check(outcome(next), expected);
            // A stream is cancelled by its name.
            else begin(List.of(as, text(step, "fails", null)), next);
        } else if (step.has("leave")) {
            streams.get(text(step, "leave", null)).close();
        } else if (step.has("cancel")) {
            threads.get(text(step, "cancel", null)).interrupt();
        } else if (step.has("await")) {
            check(running.get(text(step, "await", null)).get(PATIENCE.toSeconds(), TimeUnit.SECONDS), expected);
        } else if (as != null) {
            begin(List.of(as), () -> ask(step));
        } else {
            check(outcome(() -> ask(step)), expected);
        }
    }

    void begin(List<String> names, Callable<JsonElement> ask) {
        var task = new FutureTask<>(() -> outcome(ask));
        var thread = new Thread(task);
        for (var name : names) threads.put(name, thread);
        running.put(names.get(0), task);
        thread.setDaemon(true);
        thread.start();
    }

    Void run(JsonArray steps) throws Exception {
        try {
            for (var step : steps) step(step.getAsJsonObject());
        } finally {
            streams.values().forEach(EventStream::close);
            threads.values().forEach(Thread::interrupt);
            socket.close();
            control("{\"do\": \"start\"}");
            control("{\"do\": \"faults\", \"faults\": []}");
        }
        return null;
    }

    public static void main(String[] arguments) throws Exception {
        var cases = JsonParser.parseString(Files.readString(Path.of(arguments[0]))).getAsJsonObject().getAsJsonArray("cases");
        int passed = 0, failed = 0;
        for (var number = 0; number < cases.size(); number++) {
            var one = cases.get(number).getAsJsonObject();
            var name = text(one, "name", "");
            if (arguments.length > 1 && !name.contains(arguments[1])) continue;
            var runner = new Cases(number);
            var task = new FutureTask<>(() -> runner.run(one.getAsJsonArray("steps")));
            var thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
            try {
                task.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
                passed++;
            } catch (Exception error) {
                failed++;
                System.out.println("FAILED " + name + "\n    " + (error.getCause() == null ? error : error.getCause()));
            }
        }
        System.out.println("java: " + passed + " passed, " + failed + " failed");
        System.exit(failed == 0 && passed > 0 ? 0 : 1);
    }
}
