import { useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { JournalParts, Medium } from '../../api/types';
import { ago, bytes, instant, plural, whole } from '../../lib/format';
import { Absent } from '../../parts/absent';
import { Badge, Card } from '../../parts/basic';
import { useLoad } from '../../parts/load';
import { Table } from '../../parts/table';

const RELOAD_MS = 10_000;
const FEW = 10;
/** As many as the server lists at once. */
const MANY = 1_000;

/** Who has written, and the segments or tables that it stands in. */
export function Parts({ medium }: { medium: Medium }) {
  const [limit, setLimit] = useState(FEW);
  const { value: listed, failure } = useLoad(() => calls.journalParts(limit), [limit], RELOAD_MS);
  if (!listed) return <Absent failure={failure} what="the writers" />;
  const all = listed.writers_total > listed.writers.length || listed.parts_total > listed.parts.length;
  return (
    <>
      <Writers listed={listed} />
      {listed.parts.length > 0 && <Stored listed={listed} medium={medium} />}
      {all && limit < MANY && (
        <button type="button" class="button" onClick={() => setLimit(MANY)}>
          Show {MANY > listed.parts_total && MANY > listed.writers_total ? 'all' : whole(MANY)} of both
        </button>
      )}
    </>
  );
}

const of = (shown: number, total: number, one: string, many?: string) =>
  shown < total ? `the newest ${whole(shown)} of ${plural(total, one, many)}` : plural(total, one, many);

function When({ at }: { at: string | null }) {
  return at ? <time title={instant(at)}>{ago(at)}</time> : <span class="quiet">–</span>;
}

function Writers({ listed: { writers, writers_total } }: { listed: JournalParts }) {
  const hasSegments = writers.some((one) => one.segments !== null);
  const hasEnds = writers.some((one) => one.ended_at !== null);
  return (
    <Card
      title="Writers"
      aside={<span class="small quiet">{of(writers.length, writers_total, 'writer', 'writers')}</span>}
    >
      <Table label="Writers">
        <thead>
          <tr>
            <th scope="col" class="number">
              Writer
            </th>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col" class="number">
              Commits
            </th>
            {hasSegments && (
              <th scope="col" class="number">
                Segments
              </th>
            )}
            <th scope="col">Began</th>
            {hasEnds && <th scope="col">Ended</th>}
          </tr>
        </thead>
        <tbody>
          {writers.map((one) => (
            <tr key={one.writer}>
              <td class="number">{one.writer}</td>
              <td class="break">{one.node || '–'}</td>
              <td>
                <Badge {...(one.is_open && { tone: 'good' as const })} icon={one.is_open ? 'good' : 'stopped'}>
                  {one.is_open ? 'writing' : 'ended'}
                </Badge>
              </td>
              <td class="number">{whole(one.last)}</td>
              {hasSegments && <td class="number">{one.segments === null ? '–' : whole(one.segments)}</td>}
              <td>
                <When at={one.begun_at} />
              </td>
              {hasEnds && (
                <td>
                  <When at={one.ended_at} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </Table>
    </Card>
  );
}

function Stored({ listed: { parts, parts_total }, medium }: { listed: JournalParts; medium: Medium }) {
  const isTables = medium === 'postgresql';
  const title = isTables ? 'Tables' : 'Segments';
  return (
    <Card
      title={title}
      aside={<span class="small quiet">{of(parts.length, parts_total, isTables ? 'table' : 'segment')}</span>}
    >
      <Table label={title}>
        <thead>
          <tr>
            <th scope="col">{isTables ? 'Table' : 'File'}</th>
            <th scope="col" class="number">
              Size
            </th>
            {isTables ? (
              <th scope="col" class="number">
                Rows, about
              </th>
            ) : (
              <>
                <th scope="col">First commit</th>
                <th scope="col">Begun</th>
              </>
            )}
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={part.name}>
              <td class="mono">{part.name}</td>
              <td class="number">{bytes(part.bytes)}</td>
              {isTables ? (
                <td class="number">{part.rows === null ? '–' : whole(part.rows)}</td>
              ) : (
                <>
                  <td class="mono">{part.first ?? '–'}</td>
                  <td>
                    <When at={part.begun_at} />
                  </td>
                </>
              )}
            </tr>
          ))}
        </tbody>
      </Table>
    </Card>
  );
}
