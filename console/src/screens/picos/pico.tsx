import { useState } from 'preact/hooks';
import * as picos from '../../api/picos';
import { instant, plural } from '../../lib/format';
import { line } from '../../lib/json';
import { type Policy as PolicyRules, verdict } from '../../lib/policy';
import { link } from '../../lib/route';
import { Absent } from '../../parts/absent';
import { Badge, Card, Empty, Note, TabPanel, Tabs } from '../../parts/basic';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';
import { route, set } from '../../state/place';
import { lack } from '../../state/role';
import { PicoMap } from './around';
import { Change } from './change';
import { Editor } from './editor';
import { Manage, Uninstall } from './manage';
import { Painted } from './painted';
import { Rules } from './rules';
import { Try } from './try';
import { Variables } from './variables';

const LOG_PAGE = 100;
const RELOAD_MS = 5_000;

type View = 'rulesets' | 'variables' | 'editor' | 'channels' | 'map' | 'log' | 'try';

/** One pico: what it has, what it has handled, and trying it. */
export function PicoView({ eci, changed }: { eci: string; changed: () => void }) {
  const { value: box, failure, reload: reloadBox } = useLoad(() => picos.box(eci), [eci], RELOAD_MS);
  const { value: pico, reload: reloadPico } = useLoad(() => picos.pico(eci), [eci], RELOAD_MS);
  // All that asks a pico to do something, or to try it, is an operator's.
  const why = lack('operator');
  const isHidden = (view: string) => why !== undefined && (view === 'editor' || view === 'try');
  const wanted = route.value.query.get('tab') ?? 'rulesets';
  const view = (isHidden(wanted) ? 'rulesets' : wanted) as View;
  if (!box || !pico) return <Absent failure={failure} what="the pico" />;
  const reload = () => {
    reloadBox();
    reloadPico();
    changed();
  };
  return (
    <Card
      title={<span class="break">{picos.nameOf(box)}</span>}
      aside={
        <span class="row small quiet">
          {plural(box.children.length, 'child', 'children')}
          <a href={link('entity', [picos.KIND, picos.idOf(eci)])}>Time travel</a>
        </span>
      }
    >
      <Tabs
        label="What of it"
        current={view}
        choose={(tab) => set({ tab: tab === 'rulesets' ? undefined : tab })}
        items={[
          { id: 'rulesets', label: 'Rulesets', count: pico.rulesets.length },
          { id: 'variables', label: 'Variables' },
          { id: 'editor', label: 'Editor' },
          { id: 'channels', label: 'Channels', count: pico.channels.length },
          { id: 'map', label: 'Map' },
          { id: 'log', label: 'Log' },
          { id: 'try', label: 'Try' },
        ].filter(({ id }) => !isHidden(id))}
      />
      <TabPanel id={view}>
        <div class="pico-panel">
          {view === 'variables' ? (
            <Variables eci={eci} />
          ) : view === 'channels' ? (
            <Channels eci={eci} pico={pico} />
          ) : view === 'editor' ? (
            <Editor eci={eci} rulesets={pico.rulesets} done={reload} />
          ) : view === 'map' ? (
            <PicoMap eci={eci} />
          ) : view === 'log' ? (
            <Log eci={eci} />
          ) : view === 'try' ? (
            <Try eci={eci} pico={pico} />
          ) : (
            <div class="stack">
              <Rulesets eci={eci} rulesets={pico.rulesets} done={reload} />
              {why === undefined ? (
                <>
                  <Change eci={eci} done={reload} />
                  <Manage box={box} done={reload} />
                </>
              ) : (
                <Note tone="accent">Nothing of it can be changed or tried here: {why}</Note>
              )}
            </div>
          )}
        </div>
      </TabPanel>
    </Card>
  );
}

function Rulesets({ eci, rulesets, done }: { eci: string; rulesets: picos.Ruleset[]; done: () => void }) {
  return (
    <ul class="lines" aria-label="Rulesets">
      {rulesets.map((ruleset) => (
        <li key={ruleset.rid}>
          <p>
            <b class="break">{ruleset.rid}</b>{' '}
            {ruleset.meta?.krlMeta?.name && <span class="quiet">{ruleset.meta.krlMeta.name}</span>}{' '}
            {ruleset.url.startsWith('throng:') && <Badge>part of the engine</Badge>}
          </p>
          <p class="mono quiet break">{ruleset.url}</p>
          <div class="row">
            {ruleset.meta?.krl && <Source krl={ruleset.meta.krl} />}
            {!ruleset.url.startsWith('throng:') && lack('operator') === undefined && (
              <Uninstall eci={eci} rid={ruleset.rid} done={done} />
            )}
          </div>
        </li>
      ))}
    </ul>
  );
}

function Source({ krl }: { krl: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="button plain" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? 'Hide its source' : 'Its source'}
      </button>
      {isOpen && (
        <pre class="source" tabIndex={0}>
          <Painted krl={krl} />
        </pre>
      )}
    </>
  );
}

/** The events and queries of all that is installed. */
async function testings(eci: string, rulesets: picos.Ruleset[]): Promise<(picos.Testing & { rid: string })[]> {
  const ask = async ({ rid }: picos.Ruleset) => {
    const none: picos.Testing = { events: [], queries: [] };
    return { rid, ...(await picos.testing(eci, rid).catch(() => none)) };
  };
  return Promise.all(rulesets.map(ask));
}

/** What a channel lets through of what there is. */
function Preview({ channel, of }: { channel: picos.Channel; of: (picos.Testing & { rid: string })[] }) {
  const events = of.flatMap(({ events }) =>
    events.map(({ domain, name }) => ({
      what: `event ${domain}:${name}`,
      is: verdict(channel.eventPolicy, domain, name),
    })),
  );
  const queries = of.flatMap(({ rid, queries }) =>
    queries.map(({ name }) => ({ what: `query ${rid}/${name}`, is: verdict(channel.queryPolicy, rid, name) })),
  );
  const all = [...new Map([...events, ...queries].map((one) => [one.what, one])).values()];
  const through = all.filter((one) => one.is === 'allowed').length;
  return (
    <details class="preview">
      <summary>
        Lets through {through} of {plural(all.length, 'event and query', 'events and queries')} of what is installed
      </summary>
      <ul class="lines">
        {all.map(({ what, is }) => (
          <li key={what} class="row">
            <Badge tone={is === 'allowed' ? 'good' : 'warn'} icon={is === 'allowed' ? 'good' : 'stopped'}>
              {is}
            </Badge>
            <span class="mono break">{what}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Channels({ eci, pico: { channels, rulesets } }: { eci: string; pico: picos.Pico }) {
  const rids = rulesets.map((ruleset) => ruleset.rid).join(' ');
  const { value: of } = useLoad(() => testings(eci, rulesets), [eci, rids]);
  return (
    <ul class="lines" aria-label="Channels">
      {channels.map((channel) => (
        <li key={channel.id}>
          <p class="row">
            {channel.tags.map((tag) => (
              <Badge key={tag} tone="accent">
                {tag}
              </Badge>
            ))}
            {channel.familyChannelPicoID !== null && <Badge>family</Badge>}
          </p>
          <p class="mono break">{channel.id}</p>
          <Policy name="Events" policy={channel.eventPolicy} />
          <Policy name="Queries" policy={channel.queryPolicy} />
          {of && <Preview channel={channel} of={of} />}
        </li>
      ))}
    </ul>
  );
}

function Policy({ name, policy }: { name: string; policy: PolicyRules }) {
  const said = (rules: PolicyRules['allow']) =>
    rules.map((rule) => `${rule.domain ?? rule.rid}:${rule.name}`).join(', ');
  return (
    <p class="quiet break">
      {name}: {policy.allow.length === 0 ? 'none' : said(policy.allow)}
      {policy.deny.length > 0 && `; never ${said(policy.deny)}`}
    </p>
  );
}

function Log({ eci }: { eci: string }) {
  const [after, setAfter] = useState(0);
  const { value, failure } = useLoad(() => picos.log(eci, after, LOG_PAGE), [eci, after], RELOAD_MS);
  const [open, setOpen] = useState<number>();
  if (!value) return <Absent failure={failure} what="the log" />;
  if (value.events.length === 0) {
    return (
      <Empty icon="clock" title="No events here" compact>
        <p>
          Every event that the pico handles is logged here with its attributes, what it changed, and what its rules
          logged.
        </p>
      </Empty>
    );
  }
  return (
    <>
      <ol class="events">
        {value.events.toReversed().map((entry) => (
          <li key={entry.seq} class={`event ${open === entry.seq ? 'open' : ''}`}>
            <button
              type="button"
              class="event-head"
              aria-expanded={open === entry.seq}
              onClick={() => setOpen(open === entry.seq ? undefined : entry.seq)}
            >
              <span class="event-seq tabular quiet">{entry.seq}</span>
              <span class="event-name break">
                {entry.domain}:{entry.name}
              </span>
              {(entry.rules?.length ?? 0) > 0 && <Badge>{plural(entry.rules?.length ?? 0, 'rule')}</Badge>}
              {entry.error !== undefined && entry.error !== null && (
                <Badge tone="bad" icon="stopped">
                  failed
                </Badge>
              )}
              <span class="event-preview mono quiet">{line(entry.attrs, 80)}</span>
              <time class="event-at tabular small quiet">{instant(entry.time)}</time>
            </button>
            {open === entry.seq && (
              <div class="event-body">
                {entry.rules && <Rules rules={entry.rules} failed={entry.error != null} />}
                <JsonTree
                  value={{
                    attrs: entry.attrs,
                    changes: entry.changes,
                    log: entry.log,
                    ...(entry.error != null && { error: entry.error }),
                  }}
                  label={`Event ${entry.seq}`}
                />
                <p class="small quiet mono">{entry.eid}</p>
              </div>
            )}
          </li>
        ))}
      </ol>
      <div class="row pager">
        {after > 0 && (
          <button type="button" class="button" onClick={() => setAfter(0)}>
            From the first
          </button>
        )}
        {value.next !== null && value.events.length === LOG_PAGE && (
          <button type="button" class="button" onClick={() => setAfter(value.next ?? 0)}>
            Later events
          </button>
        )}
      </div>
    </>
  );
}
