package throng.client;

import java.time.Duration;

/**
 * Options of a request. {@code key}: under one key a command takes effect once; the client makes one unless there is one, and keeps it over all
 * attempts. {@code timeout}: until it fails, with all its attempts; the service is told of it. {@code traceparent}: W3C trace context.
 */
public record Options(String key, boolean isKeyless, Duration timeout, String traceparent) {
    public static final Options NONE = new Options(null, false, null, null);

    public static Options ofKey(String key) {
        return NONE.key(key);
    }

    public static Options ofTimeout(Duration timeout) {
        return NONE.timeout(timeout);
    }

    public Options key(String key) {
        return new Options(key, false, timeout, traceparent);
    }

    /** For actors and for routes without a key: nothing is sent again that may have taken effect. */
    public Options keyless() {
        return new Options(null, true, timeout, traceparent);
    }

    public Options timeout(Duration timeout) {
        return new Options(key, isKeyless, timeout, traceparent);
    }

    public Options traceparent(String traceparent) {
        return new Options(key, isKeyless, timeout, traceparent);
    }
}
