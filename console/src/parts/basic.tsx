import type { ComponentChildren } from 'preact';
import { Icon } from './icon';

type Tone = 'warn' | 'bad' | 'good' | 'accent';

export function Card({
  title,
  aside,
  children,
  class: extra = '',
}: {
  title?: ComponentChildren;
  aside?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`card ${extra}`}>
      {(title || aside) && (
        <div class="card-head">
          <h2>{title}</h2>
          {aside}
        </div>
      )}
      {children}
    </section>
  );
}

/** What will appear here, and how to make it appear. */
export function Empty({
  icon,
  title,
  children,
  compact = false,
}: {
  icon: string;
  title: string;
  children?: ComponentChildren;
  compact?: boolean;
}) {
  return (
    <div class={compact ? 'empty compact' : 'empty'}>
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Badge({ tone, icon, children }: { tone?: Tone; icon?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone ?? ''}`}>
      {icon && <Icon name={icon} />}
      {children}
    </span>
  );
}

const ICON_OF_TONE: Record<Tone, string> = { warn: 'trouble', bad: 'stopped', good: 'good', accent: 'help' };

export function Note({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <div class={`note-box ${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <Icon name={ICON_OF_TONE[tone]} />
      <div class="break">{children}</div>
    </div>
  );
}

/** What may be wider or taller than its place: it scrolls, also by keys. */
export function Scroll({
  label,
  class: extra = '',
  children,
}: {
  label: string;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <section class={`scroll ${extra}`} tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

/** A share of a whole as a bar; the figure stands beside it. */
export function Meter({ share, tone, label }: { share: number; tone?: 'warn' | 'bad' | undefined; label: string }) {
  const percent = Math.max(0, Math.min(100, share * 100));
  return (
    <div class={`meter ${tone ?? ''}`} role="img" aria-label={label}>
      <svg preserveAspectRatio="none" viewBox="0 0 100 1" aria-hidden="true">
        <rect width={percent} height="1" />
      </svg>
    </div>
  );
}

export interface TabItem {
  id: string;
  label: string;
  count?: number | undefined;
  tone?: Tone | undefined;
}

/** Tabs as the ARIA practices have them: one is in the tab order, arrows move. */
export function Tabs({
  items,
  current,
  choose,
  label,
}: {
  items: TabItem[];
  current: string;
  choose: (id: string) => void;
  label: string;
}) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = items.findIndex((item) => item.id === current);
    const next = items[(at + step + items.length) % items.length];
    if (!next) return;
    choose(next.id);
    const list = event.currentTarget as HTMLElement;
    list.querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {items.map((item) => (
        <button
          key={item.id}
          type="button"
          role="tab"
          id={`tab-${item.id}`}
          data-tab={item.id}
          class="tab"
          aria-selected={item.id === current}
          aria-controls="tab-panel"
          tabIndex={item.id === current ? 0 : -1}
          onClick={() => choose(item.id)}
        >
          {item.label}
          {item.count !== undefined && item.count > 0 && (
            <Badge {...(item.tone && { tone: item.tone })}>{item.count}</Badge>
          )}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return (
    <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${id}`}>
      {children}
    </div>
  );
}
