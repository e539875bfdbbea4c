package contenders;

import com.fasterxml.jackson.annotation.JsonSubTypes;
import com.fasterxml.jackson.annotation.JsonTypeInfo;
import java.time.Instant;
import java.util.Set;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.cluster.sharding.typed.javadsl.EntityTypeKey;
import org.apache.pekko.persistence.typed.PersistenceId;
import org.apache.pekko.persistence.typed.javadsl.CommandHandlerWithReply;
import org.apache.pekko.persistence.typed.javadsl.EventHandler;
import org.apache.pekko.persistence.typed.javadsl.EventSourcedBehaviorWithEnforcedReplies;
import org.apache.pekko.persistence.typed.javadsl.ReplyEffect;

/** A show and its seats, event-sourced. */
final class Show extends EventSourcedBehaviorWithEnforcedReplies<Show.Command, Show.Event, Show.State> {
  static final EntityTypeKey<Command> KEY = EntityTypeKey.create(Command.class, "Show");
  private static final int SEATS_MOST = 100;
  private static final int PRICE = 100;

  sealed interface Command {}

  record Create(String title, int maxSeats, ActorRef<Outcome> replyTo) implements Command {}

  record Reserve(int seat, ActorRef<Outcome> replyTo) implements Command {}

  record Cancel(int seat, ActorRef<Outcome> replyTo) implements Command {}

  record Get(ActorRef<View> replyTo) implements Command {}

  /** What came of a command: no error is success. */
  record Outcome(Error error) {
    static final Outcome DONE = new Outcome(null);
  }

  /** As it is now; no state is no show. */
  record View(State state) {}

  enum Error {
    SHOW_ALREADY_EXISTS,
    SHOW_NOT_EXISTS,
    TOO_MANY_SEATS,
    SEAT_NOT_EXISTS,
    SEAT_NOT_AVAILABLE,
    SEAT_NOT_RESERVED
  }

  @JsonTypeInfo(use = JsonTypeInfo.Id.NAME, property = "type")
  @JsonSubTypes({
    @JsonSubTypes.Type(value = Created.class, name = "created"),
    @JsonSubTypes.Type(value = SeatReserved.class, name = "reserved"),
    @JsonSubTypes.Type(value = SeatReservationCancelled.class, name = "cancelled")
  })
  sealed interface Event extends Stored {}

  record Created(String showId, String title, int maxSeats, int price, Instant createdAt) implements Event {}

  record SeatReserved(String showId, int seat, Instant createdAt) implements Event {}

  record SeatReservationCancelled(String showId, int seat, Instant createdAt) implements Event {}

  /** Belongs to one actor, which alone changes it. */
  static final class State {
    final String id;
    final String title;
    final int price;
    final boolean[] reserved;

    State(String id, String title, int seats, int price) {
      this.id = id;
      this.title = title;
      this.price = price;
      this.reserved = new boolean[seats];
    }

    boolean has(int seat) {
      return seat >= 0 && seat < reserved.length;
    }

    State with(int seat, boolean taken) {
      reserved[seat] = taken;
      return this;
    }
  }

  private final String id;

  private Show(String id) {
    super(PersistenceId.of("Show", id));
    this.id = id;
  }

  static Behavior<Command> create(String id) {
    return new Show(id);
  }

  @Override
  public State emptyState() {
    return null;
  }

  @Override
  public Set<String> tagsFor(Event event) {
    return Set.of("ShowEvent");
  }

  @Override
  public CommandHandlerWithReply<Command, Event, State> commandHandler() {
    var builder = newCommandHandlerWithReplyBuilder();
    builder.forNullState()
        .onCommand(Create.class, this::create)
        .onCommand(Reserve.class, command -> refuse(command.replyTo(), Error.SHOW_NOT_EXISTS))
        .onCommand(Cancel.class, command -> refuse(command.replyTo(), Error.SHOW_NOT_EXISTS))
        .onCommand(Get.class, command -> Effect().reply(command.replyTo(), new View(null)));
    builder.forNonNullState()
        .onCommand(Create.class, command -> refuse(command.replyTo(), Error.SHOW_ALREADY_EXISTS))
        .onCommand(Reserve.class, this::reserve)
        .onCommand(Cancel.class, this::cancel)
        .onCommand(Get.class, (state, command) -> Effect().reply(command.replyTo(), new View(state)));
    return builder.build();
  }

  private ReplyEffect<Event, State> create(Create command) {
    if (command.maxSeats() > SEATS_MOST) {
      return refuse(command.replyTo(), Error.TOO_MANY_SEATS);
    }
    return Effect()
        .persist((Event) new Created(id, command.title(), command.maxSeats(), PRICE, Instant.now()))
        .thenReply(command.replyTo(), state -> Outcome.DONE);
  }

  private ReplyEffect<Event, State> reserve(State show, Reserve command) {
    if (!show.has(command.seat())) {
      return refuse(command.replyTo(), Error.SEAT_NOT_EXISTS);
    }
    if (show.reserved[command.seat()]) {
      return refuse(command.replyTo(), Error.SEAT_NOT_AVAILABLE);
    }
    return Effect()
        .persist((Event) new SeatReserved(id, command.seat(), Instant.now()))
        .thenReply(command.replyTo(), state -> Outcome.DONE);
  }

  private ReplyEffect<Event, State> cancel(State show, Cancel command) {
    if (!show.has(command.seat())) {
      return refuse(command.replyTo(), Error.SEAT_NOT_EXISTS);
    }
    if (!show.reserved[command.seat()]) {
      return refuse(command.replyTo(), Error.SEAT_NOT_RESERVED);
    }
    return Effect()
        .persist((Event) new SeatReservationCancelled(id, command.seat(), Instant.now()))
        .thenReply(command.replyTo(), state -> Outcome.DONE);
  }

  private ReplyEffect<Event, State> refuse(ActorRef<Outcome> replyTo, Error error) {
    return Effect().reply(replyTo, new Outcome(error));
  }

  @Override
  public EventHandler<State, Event> eventHandler() {
    var builder = newEventHandlerBuilder();
    builder.forNullState()
        .onEvent(Created.class, event -> new State(event.showId(), event.title(), event.maxSeats(), event.price()));
    builder.forNonNullState()
        .onEvent(SeatReserved.class, (show, event) -> show.with(event.seat(), true))
        .onEvent(SeatReservationCancelled.class, (show, event) -> show.with(event.seat(), false));
    return builder.build();
  }
}
