import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { MapEntity } from '../api/types';
import { plural, short } from '../lib/format';
import { box, fit, type Grid, hit, step, tilesMax } from '../lib/grid';
import type { Heat } from '../lib/heat';
import { theme } from '../state/theme';
import { colours } from './plot';
import { RowLabels } from './row_labels';

/** Half of the map in which the chosen tile is not. */
export type Side = 'left' | 'right';

interface Props {
  entities: MapEntity[];
  heat: Heat;
  selected: string | undefined;
  select: (entity: MapEntity | undefined, away?: Side) => void;
  open: (entity: MapEntity) => void;
  /** How many tiles have room: more are not asked for. */
  room: (tiles: number) => void;
  label: string;
}

export const keyOf = (entity: { kind?: string; id: string }) => `${entity.kind ?? ''}/${entity.id}`;

const told = (entity: MapEntity) => (entity.seq === null ? entity.id : `${entity.id}, ${plural(entity.seq, 'event')}`);

/** Tiles large enough for their names. */
const NAMED_PITCH = 56;
/** Between two pictures of what cools. */
const GLOW_MS = 100;

const stillness = matchMedia('(prefers-reduced-motion: reduce)');

/**
 * Thousands of entities, each a tile: shade says how many events, glow what it does now, a sign that something is wrong. The tiles are on one canvas,
 * and what changes all the time, glow and choice, on another one above. Either is drawn when what it shows has changed, and at no other time.
 */
export function Tiles({ entities, heat, selected, select, open, room, label }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const tiles = useRef<HTMLCanvasElement>(null);
  const light = useRef<HTMLCanvasElement>(null);
  const drawn = useRef<{ painter: Painter; entities: MapEntity[]; how: string } | undefined>(undefined);
  const cooled = useRef(performance.now());
  /** Where the first of two clicks has gone: what comes between them does not lead the second one elsewhere. */
  const pressed = useRef<MapEntity | undefined>(undefined);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const colour = theme.value;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    // The height there is: few tiles take less.
    const measure = () => {
      const next = { width: element.clientWidth, height: Number.parseFloat(getComputedStyle(element).maxHeight) || 0 };
      setSize((before) => (before.width === next.width && before.height === next.height ? before : next));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    addEventListener('resize', measure);
    measure();
    return () => {
      observer.disconnect();
      removeEventListener('resize', measure);
    };
  }, []);

  useEffect(() => {
    if (size.width > 0) room(tilesMax(size.width, size.height));
  }, [size]);

  const grid = fit(entities.length, size.width, size.height);
  const places = useMemo(() => new Map(entities.map((entity, place) => [keyOf(entity), place])), [entities]);

  const ids = useMemo(() => entities.map(({ id }) => id), [entities]);

  // Only tiles that look otherwise than before
  useEffect(() => {
    if (size.width === 0) return;
    const how = JSON.stringify([size, grid, colour]);
    const before = drawn.current?.how === how ? drawn.current : undefined;
    const painter = before?.painter ?? made(tiles.current, size, grid);
    if (!painter) return;
    painter.tiles(entities, before?.entities);
    drawn.current = { painter, entities, how };
  }, [entities, size, colour]);

  // While anything glows it cools, picture by picture; else the picture stands. The clean-up of a layout effect runs before the canvas
  // leaves the page, that of an effect only after the next picture: it would draw on a canvas that is gone.
  useLayoutEffect(() => {
    const painter = size.width > 0 ? made(light.current, size, grid) : undefined;
    if (!painter) return;
    let frame = 0;
    let timer = 0;
    const paint = (now: number) => {
      frame = 0;
      heat.cool(Math.max(0, now - cooled.current) / 1000);
      cooled.current = now;
      painter.light(entities, places, heat, selected);
      if (!heat.isCold && !stillness.matches) timer = window.setTimeout(ask, GLOW_MS);
    };
    const ask = () => {
      clearTimeout(timer);
      frame ||= requestAnimationFrame(paint);
    };
    heat.changed = ask;
    ask();
    return () => {
      heat.changed = undefined;
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [entities, size, selected, colour, heat]);

  const at = (event: MouseEvent) => {
    const place = hit(grid, entities.length, event.offsetX, event.offsetY);
    return place === undefined ? undefined : entities[place];
  };
  const choose = (entity: MapEntity | undefined) => {
    const place = entity && places.get(keyOf(entity));
    const isRight = place !== undefined && box(grid, place).x > size.width / 2;
    select(entity, isRight ? 'left' : 'right');
  };
  const moved = (event: KeyboardEvent) => {
    const from = selected === undefined ? -1 : (places.get(selected) ?? -1);
    const entity = entities[from];
    if (event.key === 'Enter' && entity) return open(entity);
    if (event.key === 'Escape') return select(undefined);
    const to = from < 0 && event.key.startsWith('Arrow') ? 0 : step(grid, entities.length, from, event.key);
    if (to === undefined) return;
    event.preventDefault();
    choose(entities[to]);
  };
  const chosen = selected === undefined ? undefined : entities[places.get(selected) ?? -1];
  // Large tiles have names in them.
  const hasLabels = size.width > 0 && grid.rows > 1 && grid.pitch < NAMED_PITCH;
  return (
    <div class="tiles-frame">
      {hasLabels && <RowLabels grid={grid} ids={ids} />}
      <div
        ref={holder}
        class="tiles"
        tabIndex={0}
        role="group"
        aria-label={`${label}: arrows move, Enter opens`}
        onKeyDown={moved}
      >
        <canvas
          ref={tiles}
          role="img"
          aria-label={`${plural(entities.length, 'tile')}, one an entity`}
          onClick={(event) => {
            if (event.detail > 1) return;
            pressed.current = at(event);
            choose(pressed.current);
          }}
          onDblClick={() => pressed.current && open(pressed.current)}
          onMouseMove={(event) => {
            const entity = at(event);
            event.currentTarget.title = entity ? told(entity) : '';
            event.currentTarget.classList.toggle('points', !!entity);
          }}
        />
        <canvas ref={light} class="tiles-light" />
        <span class="hidden" aria-live="polite">
          {chosen && `${told(chosen)}, ${chosen.state}`}
        </span>
      </div>
    </div>
  );
}

/** A painter on a canvas that is cleared for it, as large as the grid. */
function made(
  canvas: HTMLCanvasElement | null,
  size: { width: number; height: number },
  grid: Grid,
): Painter | undefined {
  const context = canvas?.getContext('2d');
  if (!canvas || !context) return undefined;
  const scale = devicePixelRatio || 1;
  const [width, height] = [size.width, Math.max(1, Math.min(size.height, grid.rows * grid.pitch))];
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return new Painter(context, grid);
}

class Painter {
  private readonly colour = colours();
  private most = 1;
  private lit: HTMLCanvasElement | undefined;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly grid: Grid,
  ) {}

  /** Draws the tiles that look otherwise than before, or all. */
  tiles(entities: MapEntity[], before: MapEntity[] | undefined): void {
    const { context, grid } = this;
    // In steps: one event more must not shade all tiles anew.
    const most = 2 ** Math.ceil(Math.log2(1 + entities.reduce((most, { seq }) => Math.max(most, seq ?? 0), 1)));
    const isSame = before?.length === entities.length && most === this.most;
    this.most = most;
    if (!isSame) context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    for (const [place, entity] of entities.entries()) {
      const old = isSame ? before[place] : undefined;
      if (old === entity || (old?.seq === entity.seq && old?.state === entity.state)) continue;
      const { x, y, size } = box(grid, place);
      if (old) context.clearRect(x, y, grid.pitch, grid.pitch);
      this.tile(entity, x, y, size);
    }
  }

  /** Draws what lies above the tiles: what glows, names, the choice. */
  light(entities: MapEntity[], places: Map<string, number>, heat: Heat, selected: string | undefined): void {
    const { context, grid } = this;
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    for (const [key, glow] of heat.all()) {
      const place = places.get(key);
      const entity = place === undefined ? undefined : entities[place];
      if (place === undefined || !entity || entity.state === 'quarantined' || entity.state === 'stuck') continue;
      this.glow(place, glow);
    }
    if (grid.pitch >= NAMED_PITCH) this.names(entities, heat);
    const chosen = selected === undefined ? undefined : places.get(selected);
    if (chosen !== undefined) this.frame(chosen);
  }

  private tile(entity: MapEntity, x: number, y: number, size: number): void {
    const { context, colour } = this;
    const fullness = Math.log1p(entity.seq ?? 0) / Math.log1p(this.most);
    context.globalAlpha = 1;
    context.fillStyle = colour.sunk;
    this.square(x, y, size);
    if (entity.state === 'quarantined' || entity.state === 'stuck') {
      this.wrong(entity.state, x, y, size);
      return;
    }
    context.fillStyle = colour.faint;
    context.globalAlpha =
      entity.state === 'ended' ? 0.08 : 0.15 + 0.5 * fullness * (entity.state === 'passivated' ? 0.5 : 1);
    this.square(x, y, size);
    context.globalAlpha = 1;
  }

  /** Quarantined: a cross in a frame. Stuck: a half-filled tile. By shape, not by colour alone. */
  private wrong(state: string, x: number, y: number, size: number): void {
    const { context, colour } = this;
    const ink = state === 'quarantined' ? colour.bad : colour.warn;
    const inset = Math.max(1, size * 0.22);
    context.fillStyle = state === 'quarantined' ? colour.badSoft : colour.warnSoft;
    this.square(x, y, size);
    context.strokeStyle = ink;
    context.lineWidth = Math.max(1, Math.min(3, size / 8));
    context.beginPath();
    if (state === 'quarantined') {
      context.moveTo(x + inset, y + inset);
      context.lineTo(x + size - inset, y + size - inset);
      context.moveTo(x + size - inset, y + inset);
      context.lineTo(x + inset, y + size - inset);
      context.stroke();
    } else {
      context.moveTo(x, y + size);
      context.lineTo(x + size, y + size);
      context.lineTo(x + size, y);
      context.closePath();
      context.fillStyle = ink;
      context.fill();
    }
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }

  /** A tile with light around it, drawn once: thousands of blurred shadows a frame would be felt. */
  private lamp(size: number): HTMLCanvasElement {
    const made = document.createElement('canvas');
    const scale = devicePixelRatio || 1;
    const around = Math.max(4, size * 0.5);
    made.width = Math.ceil((size + 2 * around) * scale);
    made.height = made.width;
    const context = made.getContext('2d');
    if (context) {
      context.scale(scale, scale);
      context.shadowColor = this.colour.accent;
      context.shadowBlur = around * scale;
      context.fillStyle = this.colour.accent;
      context.fillRect(around, around, size, size);
    }
    return made;
  }

  private glow(place: number, heat: number): void {
    const { context, colour, grid } = this;
    const { x, y, size } = box(grid, place);
    if (heat > 0.35) {
      this.lit ??= this.lamp(size);
      const around = Math.max(4, size * 0.5);
      context.globalAlpha = heat;
      context.drawImage(this.lit, x - around, y - around, size + 2 * around, size + 2 * around);
    }
    context.globalAlpha = 0.2 + 0.8 * heat;
    context.fillStyle = heat > 0.6 ? colour.strong : colour.accent;
    this.square(x, y, size);
    context.globalAlpha = 1;
  }

  private names(entities: MapEntity[], heat: Heat): void {
    const { context, colour, grid } = this;
    context.font = `500 12px ${colour.font}`;
    for (const [place, entity] of entities.entries()) {
      const { x, y, size } = box(grid, place);
      context.save();
      context.beginPath();
      context.rect(x, y, size, size);
      context.clip();
      context.fillStyle = heat.of(keyOf(entity)) > 0.3 ? colour.surface : colour.text;
      context.fillText(cut(entity.id, 64), x + 8, y + 20, undefined);
      context.globalAlpha = 0.72;
      context.font = `400 11px ${colour.font}`;
      context.fillText(entity.seq === null ? '' : short(entity.seq), x + 8, y + size - 10);
      context.font = `500 12px ${colour.font}`;
      context.restore();
    }
  }

  private frame(place: number): void {
    const { context, colour, grid } = this;
    const { x, y, size } = box(grid, place);
    context.strokeStyle = colour.text;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, size - 2, size - 2);
  }

  private square(x: number, y: number, size: number): void {
    const { context } = this;
    if (size < 10) {
      context.fillRect(x, y, size, size);
      return;
    }
    context.beginPath();
    context.roundRect(x, y, size, size, Math.min(6, size / 6));
    context.fill();
  }
}

/** The first characters; control characters and line breaks would not be drawn. */
function cut(text: string, length: number): string {
  return text.slice(0, length).replace(/\p{C}/gu, '·');
}
