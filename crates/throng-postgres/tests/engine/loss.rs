//! Lost rows, proved by the tables: refused, or accepted and recorded for good.

use crate::{
    counter::{Command, Counter, Hits, engine},
    kit,
    over_nodes::Counted,
};
use throng::{Engine, StartError, projection::ProjectionState};
use throng_journal::{Error, Loss, Position};
use throng_postgres::{PostgresOptions, open_postgres, tools};

async fn hit(engine: &Engine, times: u64) {
    for _ in 0..times {
        engine.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    }
}

/// Runs two epochs of three hits each, then deletes the rows of the second, as a partial restore would.
async fn halved(schema: &str) {
    for _ in 0..2 {
        let engine = engine(kit::options(schema, "lease=0")).await;
        hit(&engine, 3).await;
        engine.stop().await;
    }
    lose_last_writer(schema).await;
}

async fn lose_last_writer(schema: &str) {
    let psql = kit::psql(&kit::SERVER).await;
    let last = format!("(SELECT max(writer) FROM {schema}.writers)");
    psql.batch_execute(&format!(
        "SET search_path TO {schema}; DELETE FROM commits WHERE writer = {last}; DELETE FROM leases WHERE writer = {last}; \
         DELETE FROM writers WHERE writer = {last}"
    ))
    .await
    .unwrap();
}

async fn start(options: PostgresOptions) -> Result<Engine, StartError> {
    let opened = open_postgres(options).unwrap();
    let builder = Engine::builder().with::<Counter>().query::<Counter, Hits>();
    builder.start_shared(opened.journal, opened.store).await
}

/// Starts an engine with a read model in the schema of its journal.
async fn start_with_rows(options: PostgresOptions) -> Result<Engine, StartError> {
    let opened = open_postgres(options).unwrap();
    let builder = Engine::builder().with::<Counter>().query::<Counter, Hits>();
    let builder = builder.projection(Counted).views(opened.views);
    builder.start_shared(opened.journal, opened.store).await
}

async fn refused(options: PostgresOptions) -> Loss {
    match start(options).await {
        Err(StartError::Journal(Error::Lost { loss, .. })) => loss,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

fn accepting(schema: &str, covered: Position) -> PostgresOptions {
    let mut options = kit::options(schema, "lease=0");
    options.accept_loss = Some(covered);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_lost_commits_is_refused_and_changes_nothing() {
    let schema = kit::schema();
    halved(&schema).await;
    let loss = refused(kit::options(&schema, "lease=0")).await;
    assert!(
        loss.covered.writer > loss.held.writer && loss.covered.commit.0 >= 3,
        "{loss}"
    );
    let other = Position::new(loss.covered.writer, loss.held.commit);
    for options in [
        kit::options(&schema, "lease=0"),
        accepting(&schema, Position::new(other.writer, other.commit.next().next())),
    ] {
        assert_eq!(refused(options).await, loss, "the proof is kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_loss_is_recorded_and_no_number_is_given_twice() {
    let schema = kit::schema();
    halved(&schema).await;
    let loss = refused(kit::options(&schema, "lease=0")).await;
    let engine = start(accepting(&schema, loss.covered)).await.unwrap();
    assert_eq!(
        engine.entity::<Counter>("one").read(Hits).await.unwrap(),
        3,
        "what is left"
    );
    hit(&engine, 2).await;
    engine.stop().await;
    drop(engine);
    let psql = kit::psql(&kit::SERVER).await;
    let row = psql
        .query_one(
            &format!(
                "SELECT min(writer), (SELECT count(*) FROM {schema}.lost_events) FROM {schema}.writers WHERE writer > $1"
            ),
            &[&loss.held.writer.0.cast_signed()],
        )
        .await
        .unwrap();
    assert!(
        row.get::<_, i64>(0) > loss.covered.writer.0.cast_signed(),
        "a number was given twice"
    );
    assert_eq!(
        row.get::<_, i64>(1),
        3,
        "what the table events still knew of them is kept"
    );
    let again = start(kit::options(&schema, "lease=0")).await.unwrap();
    assert_eq!(again.entity::<Counter>("one").read(Hits).await.unwrap(), 5);
    again.stop().await;
    drop(again);
    let options = kit::options(&schema, "");
    let found = tokio::task::spawn_blocking(move || tools::verify(&options).unwrap())
        .await
        .unwrap();
    assert!(
        found.damages.iter().any(|damage| damage.place == "accepted loss"),
        "{found}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_an_unknown_writer_are_damage() {
    let schema = kit::schema();
    let engine = engine(kit::options(&schema, "lease=0")).await;
    hit(&engine, 1).await;
    engine.stop().await;
    drop(engine);
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("DELETE FROM {schema}.writers"))
        .await
        .unwrap();
    let refused = start(kit::options(&schema, "lease=0")).await.err().unwrap().to_string();
    assert!(refused.contains("missing from the table writers"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_model_of_lost_commits_stops_until_it_is_rebuilt() {
    for has_taken_them in [true, false] {
        let schema = kit::schema();
        let options = || kit::options(&schema, "lease=0");
        for has_rows in [true, has_taken_them] {
            let engine = match has_rows {
                true => start_with_rows(options()).await.unwrap(),
                false => start(options()).await.unwrap(),
            };
            hit(&engine, 3).await;
            assert!(!has_rows || engine.read_model::<Counted>().caught_up().await);
            engine.stop().await;
        }
        lose_last_writer(&schema).await;
        let loss = refused(options()).await;
        let engine = start_with_rows(accepting(&schema, loss.covered)).await.unwrap();
        let rows = engine.read_model::<Counted>();
        assert_eq!(rows.caught_up().await, !has_taken_them, "{:?}", engine.projections());
        if has_taken_them {
            let ProjectionState::Stopped { reason, .. } = engine.projections()[0].state.clone() else {
                panic!("{:?}", engine.projections())
            };
            assert!(reason.contains("has lost its end; rebuild"), "{reason}");
            assert!(engine.rebuild_projection("counted"));
        }
        hit(&engine, 2).await;
        assert!(rows.caught_up().await, "{:?}", engine.projections());
        assert_eq!(rows.get("one").await.unwrap(), Some(b"5".to_vec()));
        engine.stop().await;
        drop((engine, rows));
        let again = start_with_rows(options()).await.unwrap();
        assert!(again.read_model::<Counted>().caught_up().await);
        again.stop().await;
    }
}
