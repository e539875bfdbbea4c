package throng.client;

import com.google.gson.JsonElement;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Events, forever: over restarts of the service and cuts of the connection, each once. Leave the loop and {@link #close} it, or interrupt the
 * thread, to end it. {@code next} throws a {@link Failure} where going on is not possible.
 */
public final class EventStream<P> implements Iterator<Event<P>>, Iterable<Event<P>>, AutoCloseable {
    /** A connection with events. */
    interface Source extends AutoCloseable {
        Event<JsonElement> next() throws InterruptedException;

        /** Ends a {@code next} of another thread, too. */
        @Override
        void close();
    }

    interface Opening {
        Source open(String after) throws InterruptedException;
    }

    private final Opening opening;
    private final Function<Event<JsonElement>, Event<P>> read;
    private final CountDownLatch closed = new CountDownLatch(1);
    private volatile Source source;
    private String after;

    EventStream(Opening opening, String after, Function<Event<JsonElement>, Event<P>> read) {
        this.opening = opening;
        this.after = after;
        this.read = read;
    }

    /** The same with payloads of a choice that `throng client java` wrote. */
    public <Q> EventStream<Q> typed(Class<Q> type) {
        return new EventStream<>(opening, after, event -> event.typed(type));
    }

    @Override
    public Iterator<Event<P>> iterator() {
        return this;
    }

    @Override
    public boolean hasNext() {
        return closed.getCount() > 0;
    }

    @Override
    public Event<P> next() {
        try {
            for (var inVain = 0; ; inVain++) {
                if (Thread.interrupted()) throw new InterruptedException();
                try {
                    var open = source;
                    if (open == null) source = open = opening.open(after);
                    if (!hasNext()) throw new Failure.Cancelled();
                    var event = open.next();
                    if (event.cursor() != null) after = event.cursor();
                    return read.apply(event);
                } catch (Failure failure) {
                    end();
                    if (!hasNext()) throw new Failure.Cancelled();
                    if (Retry.isFinal(failure)) throw failure;
                    closed.await(Retry.pause(failure, inVain), TimeUnit.NANOSECONDS);
                }
            }
        } catch (InterruptedException interrupted) {
            close();
            Thread.currentThread().interrupt();
            throw new Failure.Cancelled();
        }
    }

    @Override
    public void close() {
        closed.countDown();
        end();
    }

    private void end() {
        var open = source;
        source = null;
        if (open != null) open.close();
    }
}
