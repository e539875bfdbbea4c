package throng.client;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import throng.client.Failure.Problem;
import throng.client.Failure.Unreachable;
import throng.client.Socket.Outcome;

/** One connection. Its monitor guards {@code next}, {@code told}, {@code socket} and {@code isOver}. */
final class Link implements WebSocket.Listener {
    /** Of a frame at most: the service takes 2 MiB and 10,000 messages. */
    private static final int FRAME_LETTERS = 300_000;
    private static final int FRAME_MESSAGES = 1_000;
    private static final long SEND_MAX = TimeUnit.SECONDS.toNanos(30);
    /** After so much silence the service is asked for a sound, and without one in time the connection has ended. The JDK may not tell of a cut. */
    private static final long PING_AFTER = TimeUnit.SECONDS.toNanos(5);
    private static final long SILENCE_MAX = TimeUnit.SECONDS.toNanos(12);

    /** A frame is sent once the one before it has gone. */
    private final ReentrantLock sending = new ReentrantLock();
    /** Has room for all that the service may say: an answer for each question, or the events that credit was granted for. */
    private final Map<Long, Inbox<JsonObject>> told = new HashMap<>();
    /** The frame that arrives; of the socket's own thread. */
    private final StringBuilder text = new StringBuilder();
    /** Written by the socket's own thread. */
    private volatile long heardAt = System.nanoTime();
    private WebSocket socket;
    private long next = 1;
    private boolean isOver;

    @Override
    public void onOpen(WebSocket own) {
        synchronized (this) {
            socket = own;
            if (isOver) own.abort();
        }
        own.request(1);
    }

    @Override
    public CompletionStage<?> onText(WebSocket own, CharSequence part, boolean isLast) {
        heardAt = System.nanoTime();
        text.append(part);
        if (isLast) {
            var frame = Json.parse(text.toString());
            text.setLength(0);
            if (frame instanceof JsonArray several) several.forEach(this::onMessage);
            else onMessage(frame);
        }
        own.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onPing(WebSocket own, ByteBuffer content) {
        return onPong(own, content);
    }

    @Override
    public CompletionStage<?> onPong(WebSocket own, ByteBuffer content) {
        heardAt = System.nanoTime();
        own.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onClose(WebSocket own, int code, String reason) {
        end();
        return null;
    }

    @Override
    public void onError(WebSocket own, Throwable error) {
        end();
    }

    private void onMessage(JsonElement one) {
        var message = one.getAsJsonObject();
        // Of other kinds nothing is to be known.
        if (!message.has("problem") && !List.of("reply", "events").contains(message.get("type").getAsString())) return;
        var id = message.get("id");
        if (id == null || id.isJsonNull()) return;
        Inbox<JsonObject> inbox;
        synchronized (this) {
            inbox = told.get(id.getAsLong());
        }
        if (inbox != null && !inbox.add(message)) end();
    }

    synchronized boolean isOver() {
        return isOver;
    }

    synchronized void end() {
        isOver = true;
        told.values().forEach(Inbox::end);
        if (socket != null) socket.abort();
    }

    /** An outcome for each question. */
    Outcome[] ask(List<JsonObject> messages, long end) throws InterruptedException {
        var answers = new Inbox<JsonObject>(messages.size());
        var first = name(answers, messages.size());
        var outcomes = new Outcome[messages.size()];
        try {
            for (var at = 0; at < outcomes.length; at++) {
                messages.get(at).addProperty("id", first + at);
                outcomes[at] = new Outcome(null, new Unreachable("There was no answer over the socket.", null));
            }
            send(messages, end - System.nanoTime());
            for (var answered = 0; answered < outcomes.length; answered++) {
                var answer = take(answers, end);
                if (answer == null) break;
                var problem = answer.getAsJsonObject("problem");
                var at = (int) (answer.get("id").getAsLong() - first);
                outcomes[at] = problem == null ? new Outcome(answer.get("body"), null) : new Outcome(null, Problem.read(problem));
            }
            return outcomes;
        } finally {
            forget(first, messages.size());
        }
    }

    /** The events of a subscription, which grants credit as they are taken. */
    EventStream.Source follow(JsonObject subscription, int credit, boolean isOfKind, String after) throws InterruptedException {
        var news = new Inbox<JsonObject>(credit + 1);
        var id = name(news, 1);
        subscription.addProperty("id", id);
        send(List.of(subscription), SEND_MAX);
        return new EventStream.Source() {
            private final ArrayDeque<Event<JsonElement>> batch = new ArrayDeque<>();
            private String last = after;
            private int taken;
            private boolean isOpen = true;

            @Override
            public Event<JsonElement> next() throws InterruptedException {
                while (batch.isEmpty()) {
                    if (taken * 2 >= credit) {
                        var grant = about("credit", id);
                        grant.addProperty("credit", taken);
                        send(List.of(grant), SEND_MAX);
                        taken = 0;
                    }
                    var message = take(news, System.nanoTime() + Long.MAX_VALUE / 2);
                    if (message == null) throw new Unreachable("The socket was cut.", null);
                    if (message.has("problem")) {
                        isOpen = false;
                        var problem = Problem.read(message.getAsJsonObject("problem"));
                        throw problem.code().equals("slow-reader") ? new Unreachable(problem.getMessage(), problem) : problem;
                    }
                    add(message.getAsJsonArray("events"), message.get("cursor").getAsString());
                }
                return batch.poll();
            }

            private void add(JsonArray events, String cursor) {
                for (var element : events) {
                    var event = element.getAsJsonObject();
                    var own = event.get("seq").getAsString() + "@" + event.get("position").getAsString();
                    // Of a kind: that before them begins no later than after each but the last.
                    var ofKind = batch.size() + 1 == events.size() ? cursor : last;
                    batch.add(Event.of(event, isOfKind ? ofKind : own));
                }
                taken += events.size();
                last = cursor;
            }

            @Override
            public void close() {
                news.end();
                forget(id, 1);
                if (!isOpen || isOver()) return;
                var isInterrupted = Thread.interrupted();
                try {
                    send(List.of(about("unsubscribe", id)), SEND_MAX);
                } catch (InterruptedException interrupted) {
                    isInterrupted = true;
                } catch (Unreachable cut) {
                    // It has ended with the connection.
                }
                if (isInterrupted) Thread.currentThread().interrupt();
            }
        };
    }

    /** The next message; null after the end of the connection or of the time. */
    private JsonObject take(Inbox<JsonObject> inbox, long end) throws InterruptedException {
        while (true) {
            var left = end - System.nanoTime();
            var message = inbox.take(Math.min(left, PING_AFTER));
            if (message != null || inbox.hasEnded() || left <= PING_AFTER) return message;
            var silence = System.nanoTime() - heardAt;
            if (silence > SILENCE_MAX) end();
            else if (silence > PING_AFTER) socket.sendPing(ByteBuffer.allocate(0));
        }
    }

    private static JsonObject about(String type, long id) {
        var message = new JsonObject();
        message.addProperty("type", type);
        message.addProperty("id", id);
        return message;
    }

    private synchronized long name(Inbox<JsonObject> inbox, int count) {
        var first = next;
        next += count;
        for (var id = first; id < next; id++) told.put(id, inbox);
        if (isOver) inbox.end();
        return first;
    }

    private synchronized void forget(long first, int count) {
        for (var id = first; id < first + count; id++) told.remove(id);
    }

    /** Sends messages in frames. A frame that does not go in time, or whose sender is interrupted, ends the connection. */
    private void send(List<JsonObject> messages, long left) throws InterruptedException {
        var end = System.nanoTime() + left;
        if (!sending.tryLock(left, TimeUnit.NANOSECONDS)) throw new Unreachable("The socket takes nothing.", null);
        try {
            var frame = new StringBuilder();
            var count = 0;
            for (var message : messages) {
                var one = message.toString();
                if (count > 0 && (frame.length() + one.length() > FRAME_LETTERS || count == FRAME_MESSAGES)) {
                    flush(frame, end);
                    count = 0;
                }
                frame.append(count++ == 0 ? '[' : ',').append(one);
            }
            flush(frame, end);
        } finally {
            sending.unlock();
        }
    }

    private void flush(StringBuilder frame, long end) throws InterruptedException {
        var hasGone = false;
        try {
            Client.await(socket.sendText(frame.append(']').toString(), true), end - System.nanoTime());
            frame.setLength(0);
            hasGone = true;
        } finally {
            if (!hasGone) end();
        }
    }
}
