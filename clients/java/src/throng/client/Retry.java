package throng.client;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import throng.client.Failure.Problem;
import throng.client.Failure.Unreachable;

/** What is sent again. Times are in nanoseconds. */
final class Retry {
    /** The service did nothing, and may do it later. */
    private static final Set<String> NOTHING_DONE =
        Set.of("overloaded", "unavailable", "too-many-requests", "storage-full", "expired", "request-timeout", "status/429");
    /** Of answers without such a code: statuses of proxies behind which anything may have happened. */
    private static final Set<Integer> UNKNOWN = Set.of(502, 503, 504);
    private static final double BACK_OFF_FIRST = 50e6;
    private static final double BACK_OFF_MAX = 2e9;

    interface Attempt<T> {
        T run(long left) throws InterruptedException;
    }

    /** Attempts until one is answered, the answer is final, or the time is over. {@code once}: one that may have happened can be sent again. */
    static <T> T retrying(Duration timeout, boolean once, Attempt<T> attempt) {
        var end = System.nanoTime() + timeout.toNanos();
        var mayHaveHappened = false;
        try {
            for (var attempts = 0; ; attempts++) {
                if (Thread.interrupted()) throw new InterruptedException();
                try {
                    return attempt.run(end - System.nanoTime());
                } catch (Failure failed) {
                    if (isFinal(failed)) throw failed;
                    var isOver = System.nanoTime() >= end;
                    mayHaveHappened |= isOver || isUnknown(failed);
                    if (mayHaveHappened && !once && !isOver) throw failed;
                    var wait = pause(failed, attempts);
                    if (System.nanoTime() + wait >= end) throw new Failure.Deadline(mayHaveHappened, failed);
                    TimeUnit.NANOSECONDS.sleep(wait);
                }
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new Failure.Cancelled();
        }
    }

    /** Asking again would get the same answer. */
    static boolean isFinal(Failure failure) {
        if (failure instanceof Problem problem) return !NOTHING_DONE.contains(problem.code()) && !isUnknown(problem);
        return !(failure instanceof Unreachable);
    }

    /** It may have taken effect. */
    private static boolean isUnknown(Failure failure) {
        return !(failure instanceof Problem problem) || !NOTHING_DONE.contains(problem.code()) && UNKNOWN.contains(problem.status());
    }

    /** What the service asks for and a little more, so that its clients do not come at once; or twice as long each time. */
    static long pause(Failure failure, int attempts) {
        var some = ThreadLocalRandom.current().nextDouble();
        if (failure instanceof Problem problem && problem.details().has("retry_after_s")) {
            return (long) ((problem.details().get("retry_after_s").getAsDouble() + some * 0.1) * 1e9);
        }
        return (long) (Math.min(BACK_OFF_MAX, BACK_OFF_FIRST * (1 << Math.min(attempts, 10))) * (0.5 + some / 2));
    }

    private Retry() {}
}
