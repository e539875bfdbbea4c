package throng.client;

import java.net.http.HttpClient;
import java.time.Duration;
import java.util.function.Supplier;

/**
 * Settings of a client. {@code token}: shown as {@code Authorization: Bearer}, asked for each attempt; it may give null. {@code timeout}: until
 * a request fails, with all its attempts. {@code http}: of TLS and connections; null for one of the client's own.
 */
public record Settings(Supplier<String> token, Duration timeout, HttpClient http) {
    public static final Settings DEFAULTS = new Settings(() -> null, Duration.ofSeconds(30), null);

    public Settings token(Supplier<String> token) {
        return new Settings(token, timeout, http);
    }

    public Settings timeout(Duration timeout) {
        return new Settings(token, timeout, http);
    }

    public Settings http(HttpClient http) {
        return new Settings(token, timeout, http);
    }
}
