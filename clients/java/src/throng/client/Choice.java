package throng.client;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** One of several records. JSON has the name of one without a component, or an object of which the name is the only field. */
public interface Choice {
    @Retention(RetentionPolicy.RUNTIME)
    @interface Name {
        String value();
    }
}
