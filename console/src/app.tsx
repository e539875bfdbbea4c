import { useSignalEffect } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { connection, wantsToken } from './api/client';
import { listen, SHORTCUTS } from './keys';
import { link, type Screen } from './lib/route';
import { Badge } from './parts/basic';
import { Dialog } from './parts/dialog';
import { Icon } from './parts/icon';
import { NodeSwitch } from './parts/node_switch';
import { Palette } from './parts/palette';
import { Toasts } from './parts/toasts';
import { AuditScreen } from './screens/audit';
import { ClusterScreen } from './screens/cluster';
import { EntityScreen } from './screens/entity';
import { JournalScreen } from './screens/journal';
import { LiveScreen } from './screens/live';
import { MapScreen } from './screens/map';
import { PicosScreen } from './screens/picos';
import { TokenScreen } from './screens/token';
import { TraceScreen } from './screens/trace';
import { TroubleScreen } from './screens/trouble';
import { reconnect } from './state/live';
import { route } from './state/place';
import { overview, troubles } from './state/service';
import { choice, next } from './state/theme';

interface Item {
  screen: Screen;
  name: string;
  key: string;
  shows: () => preact.JSX.Element;
}

const ITEMS: Item[] = [
  { screen: 'live', name: 'Live', key: 'l', shows: LiveScreen },
  { screen: 'map', name: 'Map', key: 'm', shows: MapScreen },
  { screen: 'entity', name: 'Entity', key: 'e', shows: EntityScreen },
  { screen: 'trouble', name: 'Trouble', key: 't', shows: TroubleScreen },
  { screen: 'journal', name: 'Journal', key: 'j', shows: JournalScreen },
  { screen: 'cluster', name: 'Cluster', key: 'c', shows: ClusterScreen },
  { screen: 'audit', name: 'Audit', key: 'a', shows: AuditScreen },
  { screen: 'picos', name: 'Picos', key: 'p', shows: PicosScreen },
  { screen: 'trace', name: 'Timeline', key: '', shows: TraceScreen },
];

export function App() {
  const [helps, setHelps] = useState(false);
  const [finds, setFinds] = useState(false);
  const [help, find] = [() => setHelps(true), () => setFinds(true)];
  useEffect(() => listen(help, find), []);
  const current = ITEMS.find((item) => item.screen === route.value.screen) ?? ITEMS[0];
  useTitle(current);
  const Shown = current?.shows ?? LiveScreen;
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={focusMain}>
        To the content
      </button>
      <Nav current={current?.screen} help={help} find={find} />
      <main class="main" id="main" tabIndex={-1}>
        <Banner />
        {wantsToken.value === undefined && <NodeSwitch />}
        {wantsToken.value === undefined ? <Shown /> : <TokenScreen {...wantsToken.value} />}
      </main>
      {helps && <Help close={() => setHelps(false)} />}
      {finds && <Palette screens={shownItems()} help={help} close={() => setFinds(false)} />}
      <Toasts />
    </div>
  );
}

/** The title says where one is; the focus follows to the screen when it changes, so that a screen reader does, too. */
function useTitle(current: Item | undefined): void {
  const before = useRef(current);
  useSignalEffect(() => {
    const { path } = route.value;
    const service = overview.value?.service;
    const count = troubles.value > 0 ? `(${troubles.value}) ` : '';
    document.title = count + [path.at(-1), current?.name, service ?? 'Throng'].filter(Boolean).join(' · ');
  });
  useEffect(() => {
    if (before.current !== current) document.getElementById('main')?.focus({ preventScroll: true });
    before.current = current;
  }, [current]);
}

function focusMain(): void {
  document.getElementById('main')?.focus();
}

/** Picos, the cluster and the audit are left out where there are none; what was caused is reached from an event. */
const shownItems = () => {
  const { picos = false, cluster = false } = overview.value?.console ?? {};
  const has: Partial<Record<Screen, boolean>> = { picos, cluster, audit: overview.value?.audit ?? false, trace: false };
  return ITEMS.filter(({ screen }) => has[screen] ?? true);
};

function Nav({ current, help, find }: { current: Screen | undefined; help: () => void; find: () => void }) {
  const items = shownItems();
  return (
    <nav class="nav" aria-label="Console">
      <a class="brand" href={link('live')}>
        <Icon name="brand" />
        <span>
          <span class="brand-name">Throng</span>
          <span class="brand-app">{overview.value?.service ?? 'console'}</span>
        </span>
      </a>
      <ul class="nav-list">
        {items.map((item) => (
          <li key={item.screen}>
            <a class="nav-link" href={link(item.screen)} aria-current={item.screen === current ? 'page' : undefined}>
              <Icon name={item.screen} />
              {item.name}
              {item.screen === 'trouble' && troubles.value > 0 ? (
                <Badge tone="warn">
                  {troubles.value}
                  <span class="hidden"> in trouble</span>
                </Badge>
              ) : (
                <kbd>g {item.key}</kbd>
              )}
            </a>
          </li>
        ))}
      </ul>
      <div class="nav-foot">
        <ConnectionState />
        <Who />
        <div class="nav-tools">
          <button
            type="button"
            class="button plain icon-only"
            onClick={find}
            aria-label="Find anything"
            title="Find anything (/ or Ctrl-K)"
          >
            <Icon name="search" />
          </button>
          <button
            type="button"
            class="button plain icon-only"
            onClick={next}
            aria-label={`Theme: ${choice.value}. Change it`}
            title={`Theme: ${choice.value}`}
          >
            <Icon name={{ system: 'system', light: 'sun', dark: 'moon' }[choice.value]} />
          </button>
          <button
            type="button"
            class="button plain icon-only tool-help"
            onClick={help}
            aria-label="Keys and help"
            title="Keys and help (?)"
          >
            <Icon name="help" />
          </button>
        </div>
      </div>
    </nav>
  );
}

function ConnectionState() {
  const state = wantsToken.value === undefined ? connection.value : 'locked';
  const text = { up: 'Connected', connecting: 'Connecting …', lost: 'Not connected', locked: 'Locked' }[state];
  return (
    <span class={`connection ${state}`} role="status">
      <span class="connection-mark" aria-hidden="true" />
      {text}
    </span>
  );
}

/** The name under which actions are recorded, and the role that says which. */
function Who() {
  const { by, role } = overview.value?.console ?? {};
  if (by === undefined || wantsToken.value !== undefined) return null;
  return (
    <span class="who small quiet break">
      {by}, {role}
    </span>
  );
}

function Banner() {
  if (connection.value !== 'lost') return null;
  return (
    <div class="banner" role="alert">
      <Icon name="trouble" />
      <span>The server does not answer. What you see is what it said last; trying again.</span>
      <button type="button" class="button" onClick={reconnect}>
        Try now
      </button>
    </div>
  );
}

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {SHORTCUTS.map(({ keys, does }) => (
          <>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </>
        ))}
      </dl>
      <div class="dialog-foot">
        <button type="button" class="button primary" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
