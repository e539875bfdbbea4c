import { useState } from 'preact/hooks';
import * as picos from '../../api/picos';
import { instant, plural } from '../../lib/format';
import { line } from '../../lib/json';
import { Absent } from '../../parts/absent';
import { Badge, Card, Empty, TabPanel, Tabs } from '../../parts/basic';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';
import { route, set } from '../../state/place';
import { Change } from './change';
import { Try } from './try';

const LOG_PAGE = 100;
const RELOAD_MS = 5_000;

type View = 'rulesets' | 'channels' | 'log' | 'try';

/** One pico: what it has, what it has handled, and trying it. */
export function PicoView({ eci, changed }: { eci: string; changed: () => void }) {
  const { value: box, failure, reload: reloadBox } = useLoad(() => picos.box(eci), [eci], RELOAD_MS);
  const { value: pico, reload: reloadPico } = useLoad(() => picos.pico(eci), [eci], RELOAD_MS);
  const view = (route.value.query.get('tab') ?? 'rulesets') as View;
  if (!box || !pico) return <Absent failure={failure} what="the pico" />;
  const reload = () => {
    reloadBox();
    reloadPico();
    changed();
  };
  return (
    <Card
      title={<span class="break">{box.name}</span>}
      aside={<span class="small quiet">{plural(box.children.length, 'child', 'children')}</span>}
    >
      <Tabs
        label="What of it"
        current={view}
        choose={(tab) => set({ tab: tab === 'rulesets' ? undefined : tab })}
        items={[
          { id: 'rulesets', label: 'Rulesets', count: pico.rulesets.length },
          { id: 'channels', label: 'Channels', count: pico.channels.length },
          { id: 'log', label: 'Log' },
          { id: 'try', label: 'Try' },
        ]}
      />
      <TabPanel id={view}>
        <div class="pico-panel">
          {view === 'channels' ? (
            <Channels channels={pico.channels} />
          ) : view === 'log' ? (
            <Log eci={eci} />
          ) : view === 'try' ? (
            <Try eci={eci} rulesets={pico.rulesets} />
          ) : (
            <div class="stack">
              <Rulesets rulesets={pico.rulesets} />
              <Change eci={eci} done={reload} />
            </div>
          )}
        </div>
      </TabPanel>
    </Card>
  );
}

function Rulesets({ rulesets }: { rulesets: picos.Ruleset[] }) {
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
          {ruleset.meta?.krl && <Source krl={ruleset.meta.krl} />}
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
      {isOpen && <pre class="source">{krl}</pre>}
    </>
  );
}

function Channels({ channels }: { channels: picos.Channel[] }) {
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
        </li>
      ))}
    </ul>
  );
}

function Policy({ name, policy }: { name: string; policy: picos.Policy }) {
  const said = (rules: picos.Policy['allow']) =>
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
              {entry.error !== undefined && entry.error !== null && (
                <Badge tone="bad" icon="stopped">
                  failed
                </Badge>
              )}
              <span class="event-preview mono quiet">{line(entry.attrs, 80)}</span>
              <time class="event-at tabular small quiet">{instant(entry.time).slice(11)}</time>
            </button>
            {open === entry.seq && (
              <div class="event-body">
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
