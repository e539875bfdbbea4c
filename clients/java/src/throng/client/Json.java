package throng.client;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.gson.ToNumberPolicy;
import com.google.gson.TypeAdapter;
import com.google.gson.TypeAdapterFactory;
import com.google.gson.reflect.TypeToken;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.util.Arrays;

/** JSON with exact numbers: those of a {@link JsonElement} have all their digits. */
public final class Json {
    static final Gson GSON = new GsonBuilder()
        .setObjectToNumberStrategy(ToNumberPolicy.BIG_DECIMAL)
        .disableHtmlEscaping()
        .registerTypeAdapterFactory(new Choices())
        .create();

    /** An answer as a type. */
    public static <T> T as(TypeToken<T> type, JsonElement answer) {
        return GSON.fromJson(answer, type);
    }

    static JsonElement parse(String text) {
        return JsonParser.parseString(text);
    }

    /** A body: an empty object, unless there is one. */
    static JsonElement body(Object body) {
        return body == null ? new JsonObject() : GSON.toJsonTree(body);
    }

    private static final class Choices implements TypeAdapterFactory {
        @Override
        public <T> TypeAdapter<T> create(Gson gson, TypeToken<T> type) {
            var choice = type.getRawType();
            if (!Choice.class.isAssignableFrom(choice)) return null;
            return new TypeAdapter<>() {
                @Override
                public void write(JsonWriter out, T value) throws IOException {
                    gson.toJson(value == null ? null : written(gson, value), out);
                }

                @Override
                @SuppressWarnings("unchecked")
                public T read(JsonReader in) throws IOException {
                    return (T) Choices.read(gson, choice, JsonParser.parseReader(in));
                }
            };
        }

        private static JsonElement written(Gson gson, Object value) {
            var name = name(value.getClass());
            try {
                for (var component : value.getClass().getRecordComponents()) {
                    var object = new JsonObject();
                    object.add(name, gson.toJsonTree(component.getAccessor().invoke(value), component.getGenericType()));
                    return object;
                }
                return new JsonPrimitive(name);
            } catch (ReflectiveOperationException hidden) {
                throw new IllegalArgumentException(value.getClass() + " is not public", hidden);
            }
        }

        /** Null for what is not among the choices. */
        private static Object read(Gson gson, Class<?> choice, JsonElement element) {
            var records = choice.isInterface() ? choice.getPermittedSubclasses() : new Class<?>[] {choice};
            var names = element instanceof JsonObject object ? object.keySet() : Arrays.asList(element.isJsonPrimitive() ? element.getAsString() : "");
            if (records == null) return null;
            for (var record : records) {
                if (!names.contains(name(record))) continue;
                try {
                    var components = record.getRecordComponents();
                    var constructor = record.getConstructors()[0];
                    if (components.length == 0) return constructor.newInstance();
                    Object value = gson.fromJson(element.getAsJsonObject().get(name(record)), components[0].getGenericType());
                    return constructor.newInstance(value);
                } catch (ReflectiveOperationException hidden) {
                    throw new IllegalArgumentException(record + " is not public", hidden);
                }
            }
            return null;
        }

        private static String name(Class<?> record) {
            return record.getAnnotation(Choice.Name.class).value();
        }
    }

    private Json() {}
}
