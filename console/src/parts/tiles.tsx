import { useEffect, useRef, useState } from 'preact/hooks';
import type { MapEntity } from '../api/types';
import { plural, short } from '../lib/format';
import { box, fit, type Grid, hit, step, tilesMax } from '../lib/grid';
import type { Heat } from '../lib/heat';
import { theme } from '../state/theme';
import { colours } from './plot';

interface Props {
  entities: MapEntity[];
  heat: Heat;
  selected: string | undefined;
  select: (entity: MapEntity | undefined) => void;
  open: (entity: MapEntity) => void;
  /** How many tiles have room: more are not asked for. */
  room: (tiles: number) => void;
  label: string;
}

export const keyOf = (entity: MapEntity) => `${entity.kind ?? ''}/${entity.id}`;

const told = (entity: MapEntity) => (entity.seq === null ? entity.id : `${entity.id}, ${plural(entity.seq, 'event')}`);

/** Tiles large enough for their names. */
const NAMED_PITCH = 56;

/** Thousands of entities, each a tile on one canvas: shade says how many events, glow what it does now, a sign that something is wrong. */
export function Tiles({ entities, heat, selected, select, open, room, label }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const colour = theme.value;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const measure = () => setSize({ width: element.clientWidth, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (size.width > 0) room(tilesMax(size.width, size.height));
  }, [size]);

  const grid = fit(entities.length, size.width, size.height);

  // Drawn anew when what is seen changes
  useEffect(() => {
    const element = canvas.current;
    if (!element || size.width === 0) return;
    const scale = devicePixelRatio || 1;
    const height = Math.max(1, Math.min(size.height, grid.rows * grid.pitch));
    element.width = Math.round(size.width * scale);
    element.height = Math.round(height * scale);
    const context = element.getContext('2d');
    if (!context) return;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const painter = new Painter(context, grid);
    let frame = 0;
    let before = performance.now();
    const paint = (now: number) => {
      heat.cool(Math.min(1, (now - before) / 1000));
      before = now;
      painter.draw(entities, heat, selected);
      // While anything glows it has to cool; else the picture stands still and is looked at seldom.
      frame = window.setTimeout(() => requestAnimationFrame(paint), heat.isCold ? 400 : 60);
    };
    paint(before);
    return () => clearTimeout(frame);
  }, [entities, size, selected, colour, heat]);

  const at = (event: MouseEvent) => {
    const place = hit(grid, entities.length, event.offsetX, event.offsetY);
    return place === undefined ? undefined : entities[place];
  };
  const moved = (event: KeyboardEvent) => {
    const from = entities.findIndex((entity) => keyOf(entity) === selected);
    const entity = entities[from];
    if (event.key === 'Enter' && entity) return open(entity);
    if (event.key === 'Escape') return select(undefined);
    const to = from < 0 && event.key.startsWith('Arrow') ? 0 : step(grid, entities.length, from, event.key);
    if (to === undefined) return;
    event.preventDefault();
    select(entities[to]);
  };
  const chosen = entities.find((entity) => keyOf(entity) === selected);
  return (
    <div
      ref={holder}
      class="tiles"
      tabIndex={0}
      role="group"
      aria-label={`${label}: arrows move, Enter opens`}
      onKeyDown={moved}
    >
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${plural(entities.length, 'tile')}, one an entity`}
        onClick={(event) => select(at(event))}
        onDblClick={(event) => {
          const entity = at(event);
          if (entity) open(entity);
        }}
        onMouseMove={(event) => {
          const entity = at(event);
          event.currentTarget.title = entity ? told(entity) : '';
          event.currentTarget.classList.toggle('points', !!entity);
        }}
      />
      <span class="hidden" aria-live="polite">
        {chosen && `${told(chosen)}, ${chosen.state}`}
      </span>
    </div>
  );
}

class Painter {
  private readonly colour = colours();
  private most = 1;
  private lit: HTMLCanvasElement | undefined;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly grid: Grid,
  ) {}

  draw(entities: MapEntity[], heat: Heat, selected: string | undefined): void {
    const { context, grid } = this;
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    this.most = entities.reduce((most, entity) => Math.max(most, entity.seq ?? 0), 1);
    let chosen: number | undefined;
    for (const [place, entity] of entities.entries()) {
      const { x, y, size } = box(grid, place);
      this.tile(entity, x, y, size);
      if (keyOf(entity) === selected) chosen = place;
    }
    for (const [place, entity] of entities.entries()) {
      const glow = heat.of(entity.id);
      if (glow > 0 && entity.state !== 'quarantined' && entity.state !== 'stuck') this.glow(place, glow);
    }
    if (grid.pitch >= NAMED_PITCH) this.names(entities, heat);
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
  private light(size: number): HTMLCanvasElement {
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
      this.lit ??= this.light(size);
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
      context.fillStyle = heat.of(entity.id) > 0.3 ? colour.surface : colour.text;
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
    context.strokeRect(x - 1, y - 1, size + 2, size + 2);
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
