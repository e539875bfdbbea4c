package throng.client;

import java.util.ArrayDeque;

/** What one thread tells another, so many at most that wait; after its end what waits, and then null. Its monitor guards all. */
final class Inbox<T> {
    private final ArrayDeque<T> waiting = new ArrayDeque<>();
    private final int max;
    private boolean hasEnded;

    Inbox(int max) {
        this.max = max;
    }

    /** False: there are too many. */
    synchronized boolean add(T one) {
        if (waiting.size() == max) return false;
        waiting.add(one);
        notifyAll();
        return true;
    }

    synchronized void end() {
        hasEnded = true;
        notifyAll();
    }

    synchronized boolean hasEnded() {
        return hasEnded;
    }

    /** The next; null after the end, or when the nanoseconds are over. */
    synchronized T take(long left) throws InterruptedException {
        var end = System.nanoTime() + left;
        while (waiting.isEmpty() && !hasEnded) {
            var milliseconds = (end - System.nanoTime()) / 1_000_000;
            if (milliseconds <= 0) return null;
            wait(milliseconds);
        }
        return waiting.poll();
    }
}
