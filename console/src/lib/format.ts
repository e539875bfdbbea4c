/** Numbers, times and sizes as people read them. All are of even width where they change in place (tabular figures do the rest). */

const grouped = new Intl.NumberFormat('en-US');

/** 44504 → `44,504` */
export function whole(value: number): string {
  return grouped.format(Math.round(value));
}

/** Three figures and a unit: 7 → `7`, 1234 → `1.23 k`, 179000 → `179 k`, 2.5e6 → `2.50 M` */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size < 1000) {
    return size < 10 && !Number.isInteger(value) ? value.toFixed(1) : String(Math.round(value));
  }
  for (const [unit, name] of [
    [1e3, 'k'],
    [1e6, 'M'],
    [1e9, 'G'],
  ] as const) {
    if (size < unit * 999.5) return `${three(value / unit)} ${name}`;
  }
  return `${three(value / 1e12)} T`;
}

function three(value: number): string {
  const size = Math.abs(value);
  if (size < 9.995) return value.toFixed(2);
  return size < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

/** 85 → `85 µs`, 1234 → `1.23 ms`, 2.5e6 → `2.50 s`, 3e8 → `5 min` */
export function micros(value: number): string {
  if (value < 999.5) return `${Math.round(value)} µs`;
  if (value < 999_500) return `${three(value / 1e3)} ms`;
  return value < 120e6 ? `${three(value / 1e6)} s` : seconds(value / 1e6);
}

/** A length of time in its largest unit, and the next one if it is small: 45 → `45 s`, 5400 → `1 h 30 min` */
export function seconds(value: number): string {
  const all = Math.max(0, Math.round(value));
  if (all < 120) return `${all} s`;
  const minutes = Math.round(all / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 || hours >= 10 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${whole(hours / 24)} days`;
}

/** 1536 → `1.50 KiB` */
export function bytes(value: number): string {
  let size = value;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (size < 1000) return unit === 'B' ? `${Math.round(size)} B` : `${three(size)} ${unit}`;
    size /= 1024;
  }
  return `${three(size)} TiB`;
}

/** How long ago an instant was; `in 5 s` for one to come. */
export function ago(instant: string | number, now: number = Date.now()): string {
  const at = typeof instant === 'number' ? instant : Date.parse(instant);
  if (Number.isNaN(at)) return String(instant);
  const passed = (now - at) / 1000;
  if (Math.abs(passed) < 1) return 'now';
  return passed < 0 ? `in ${seconds(-passed)}` : `${seconds(passed)} ago`;
}

/** An instant in the reader's time zone, to the millisecond: `2026-11-23 09:12:44.031 +01:00` */
export function instant(text: string | number): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  return `${day(at)} ${clock(at.getTime())}.${String(at.getMilliseconds()).padStart(3, '0')} ${zone(at)}`;
}

/** The same to the second: `2026-11-23 09:12:44 +01:00` */
export function second(at: number): string {
  return `${day(new Date(at))} ${clock(at)} ${zone(new Date(at))}`;
}

/** The day in the reader's time zone: `2026-11-23` */
export function day(at: Date): string {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** The reader's time zone at an instant: `+01:00`, or `UTC` */
export function zone(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return 'UTC';
  const size = Math.abs(minutes);
  return `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

const two = (part: number) => String(part).padStart(2, '0');

/** The time of the day in the reader's time zone: `09:12:44` */
export function clock(at: number): string {
  const date = new Date(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
}

/** A count that may not be known. */
export function known(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : whole(value);
}

/** A message's name as people read it: the engine's own names begin with `~`. */
export function messageName(name: string): string {
  return name === '~heard' ? 'the outcome' : name;
}

/** A text as a sentence: `the section is full` → `The section is full.` */
export function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return begun === '' || /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

/** `1 event`, `2 events` */
export function plural(count: number, one: string, many: string = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}
