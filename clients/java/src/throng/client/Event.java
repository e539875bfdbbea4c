package throng.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

/**
 * An event, with a payload of the type P: null where P has no such payload. {@code cursor} is where a later call goes on after it;
 * {@code entity} is set by those who follow a whole kind.
 */
public record Event<P>(long seq, String name, int version, String at, String position, P payload, String cursor, String entity) {
    static Event<JsonElement> of(JsonObject event, String cursor) {
        var entity = event.get("entity");
        return new Event<>(
            event.get("seq").getAsLong(), event.get("name").getAsString(), event.get("version").getAsInt(), event.get("at").getAsString(),
            event.get("position").getAsString(), event.get("payload"), cursor, entity == null ? null : entity.getAsString());
    }

    /** The same with a payload of a choice, which its name tells. */
    <Q> Event<Q> typed(Class<Q> type) {
        var choice = new JsonObject();
        choice.add(name, Json.GSON.toJsonTree(payload));
        return new Event<>(seq, name, version, at, position, Json.GSON.fromJson(choice, type), cursor, entity);
    }
}
