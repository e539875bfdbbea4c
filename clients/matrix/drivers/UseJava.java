// java.net.http: `java UseJava.java 1` or `java UseJava.java 2` (over TLS).

import java.io.*;
import java.net.*;
import java.net.http.*;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import javax.net.ssl.*;

public class UseJava {
    static final int SHOWN = 4000;
    static HttpClient client;
    static WebSocket socket;
    static final BlockingQueue<String> said = new LinkedBlockingQueue<>();

    /** Trusts every certificate: the matrix makes its own. */
    static SSLContext trusting() throws Exception {
        var all = new X509ExtendedTrustManager() {
            public void checkClientTrusted(X509Certificate[] chain, String type) {}
            public void checkServerTrusted(X509Certificate[] chain, String type) {}
            public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}
            public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {}
            public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}
            public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}
            public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
        };
        var context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] {all}, new SecureRandom());
        return context;
    }

    record Form(Map<String, List<String>> fields) {
        static Form read(String line) {
            var fields = new HashMap<String, List<String>>();
            for (var pair : line.split("&")) {
                var parts = pair.split("=", 2);
                fields.computeIfAbsent(URLDecoder.decode(parts[0], StandardCharsets.UTF_8), name -> new ArrayList<>())
                    .add(URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
            }
            return new Form(fields);
        }

        List<String> all(String name) { return fields.getOrDefault(name, List.of()); }
        String one(String name) { return all(name).isEmpty() ? "" : all(name).get(0); }
    }

    static String write(List<Map.Entry<String, String>> fields) {
        var line = new StringJoiner("&");
        for (var field : fields) line.add(field.getKey() + "=" + URLEncoder.encode(field.getValue(), StandardCharsets.UTF_8));
        return line.toString();
    }

    static HttpRequest request(Form ask, String url) {
        var body = ask.all("body").isEmpty() ? HttpRequest.BodyPublishers.noBody()
            : HttpRequest.BodyPublishers.ofByteArray(Base64.getDecoder().decode(ask.one("body")));
        var request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60)).method(ask.one("method"), body);
        for (var line : ask.all("header")) {
            var parts = line.split(": ", 2);
            request.header(parts[0], parts[1]);
        }
        return request.build();
    }

    static String told(HttpResponse<?> found, byte[] body) throws IOException {
        var fields = new ArrayList<Map.Entry<String, String>>();
        fields.add(Map.entry("status", "" + found.statusCode()));
        fields.add(Map.entry("version", found.version() == HttpClient.Version.HTTP_2 ? "2" : "1.1"));
        // java.net.http unpacks nothing by itself.
        if (found.headers().firstValue("content-encoding").orElse("").equals("gzip"))
            body = new java.util.zip.GZIPInputStream(new ByteArrayInputStream(body)).readAllBytes();
        fields.add(Map.entry("bytes", "" + body.length));
        var text = new String(body, StandardCharsets.UTF_8);
        fields.add(Map.entry("body", text.length() <= SHOWN ? text : text.substring(0, SHOWN / 2) + text.substring(text.length() - SHOWN / 2)));
        found.headers().map().forEach((name, values) -> values.forEach(value -> fields.add(Map.entry("header", name + ": " + value))));
        return write(fields);
    }

    static String ask(Form ask) throws Exception {
        var found = client.send(request(ask, ask.one("url")), BodyHandlers.ofByteArray());
        return told(found, found.body());
    }

    static String together(Form ask) throws Exception {
        var asked = ask.all("url").stream().map(url -> client.sendAsync(request(ask, url), BodyHandlers.ofString())).toList();
        var fields = new ArrayList<Map.Entry<String, String>>();
        for (var one : asked) {
            fields.add(Map.entry("status", "" + one.get().statusCode()));
            fields.add(Map.entry("body", one.get().body()));
        }
        return write(fields);
    }

    static String stream(Form ask) throws Exception {
        var found = client.send(request(ask, ask.one("url")), BodyHandlers.ofInputStream());
        var seen = new ByteArrayOutputStream();
        try (var body = found.body()) {
            var piece = new byte[65536];
            for (int read; (read = body.read(piece)) >= 0; ) {
                seen.write(piece, 0, read);
                if (!ask.one("until").isEmpty() && seen.toString(StandardCharsets.UTF_8).contains(ask.one("until"))) break;
            }
        }
        return told(found, seen.toByteArray());
    }

    static class Listener implements WebSocket.Listener {
        final StringBuilder text = new StringBuilder();

        public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean last) {
            text.append(data);
            if (last) {
                said.add(text.toString());
                text.setLength(0);
            }
            from.request(1);
            return null;
        }
    }

    static String say(Form ask) throws Exception {
        if (socket == null || socket.isInputClosed()) {
            socket = client.newWebSocketBuilder().buildAsync(URI.create(ask.one("url")), new Listener()).get();
            said.take();
        }
        socket.sendText(ask.one("message"), true).get();
        var text = Optional.ofNullable(said.poll(60, TimeUnit.SECONDS)).orElseThrow();
        return write(List.of(Map.entry("status", "0"), Map.entry("body", text.replaceFirst("^\\[(.*)\\]$", "$1"))));
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("jdk.internal.httpclient.disableHostnameVerification", "true");
        client = HttpClient.newBuilder().sslContext(trusting())
            .version(arguments[0].equals("2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1).build();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String outcome;
            try {
                var ask = Form.read(line);
                outcome = switch (ask.one("do")) {
                    case "ask" -> ask(ask);
                    case "together" -> together(ask);
                    case "stream" -> stream(ask);
                    case "say" -> say(ask);
                    default -> write(List.of(Map.entry("error", "there is no " + ask.one("do"))));
                };
            } catch (Exception error) {
                outcome = write(List.of(Map.entry("error", "" + error)));
            }
            System.out.println(outcome);
        }
        System.exit(0);
    }
}
