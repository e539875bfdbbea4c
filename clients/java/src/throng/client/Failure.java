package throng.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.reflect.TypeToken;

/** What can go wrong. */
public abstract sealed class Failure extends RuntimeException {
    private Failure(String message, Throwable cause) {
        super(message, cause);
    }

    /** The service said no (RFC 9457). Match on {@link #code}. */
    public static sealed class Problem extends Failure {
        private final transient JsonObject details;

        private Problem(JsonObject details) {
            super(text(details, "title") + ": " + text(details, "detail"), null);
            this.details = details;
        }

        /** Problem details as such, or a rejection. */
        static Problem read(JsonObject details) {
            return details.has("rejection") ? new Rejection(details) : new Problem(details);
        }

        /** The problem of an answer. A proxy before the service says no in words of its own. */
        static Problem of(int status, String body, String retryAfter) {
            var details = new JsonObject();
            try {
                if (JsonParser.parseString(body) instanceof JsonObject object) details = object;
            } catch (JsonParseException notJson) {
                // Told by its status.
            }
            if (text(details, "type").isEmpty()) {
                details = new JsonObject();
                details.addProperty("type", "status/" + status);
                details.addProperty("title", "Status " + status);
                details.addProperty("detail", body.substring(0, Math.min(body.length(), 200)));
            }
            if (!details.has("status")) details.addProperty("status", status);
            if (retryAfter != null && retryAfter.matches("\\d{1,9}") && !details.has("retry_after_s")) {
                details.addProperty("retry_after_s", Integer.valueOf(retryAfter));
            }
            return read(details);
        }

        /** All of it, as the service wrote it. */
        public JsonObject details() {
            return details;
        }

        public int status() {
            return details.get("status").getAsInt();
        }

        /** The last part of its type: {@code unknown-entity}, or the code of an entity's rejection. */
        public String code() {
            var type = text(details, "type");
            var at = type.lastIndexOf("/problems/");
            return at < 0 ? type : type.substring(at + "/problems/".length());
        }
    }

    /** An entity said no, in its own words; nothing was done. */
    public static final class Rejection extends Problem {
        private Rejection(JsonObject details) {
            super(details);
        }

        public JsonElement rejection() {
            return details().get("rejection");
        }

        /** The words as a type that `throng client java` wrote; null where it has no such words. */
        public <T> T as(TypeToken<T> type) {
            return Json.as(type, rejection());
        }
    }

    /** There was no answer: the service cannot be reached, or the connection was cut. */
    public static final class Unreachable extends Failure {
        Unreachable(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** The time was over before an answer came. Its cause is the failure of the last attempt. */
    public static final class Deadline extends Failure {
        private final boolean mayHaveHappened;

        Deadline(boolean mayHaveHappened, Throwable cause) {
            super("The time was over before there was an answer; " + (mayHaveHappened ? "it may have taken effect." : "nothing was done."), cause);
            this.mayHaveHappened = mayHaveHappened;
        }

        /** An attempt may have taken effect, and it is not known. */
        public boolean mayHaveHappened() {
            return mayHaveHappened;
        }
    }

    /** The thread was interrupted (and still is), or what it waited for was closed. What was sent may take effect all the same. */
    public static final class Cancelled extends Failure {
        Cancelled() {
            super("The caller ended it.", null);
        }
    }

    private static String text(JsonObject details, String name) {
        var value = details.get(name);
        return value != null && value.isJsonPrimitive() ? value.getAsString() : "";
    }
}
