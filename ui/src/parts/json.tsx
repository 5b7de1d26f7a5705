/**
 * Shows a JSON value as a colored outline. Strings are rendered as text nodes, never as markup.
 */
import { Fold } from "./fold.tsx";
import { visible } from "./format.ts";

/** Deeper or longer values are folded at first. */
const OPEN_DEPTH = 2;
const OPEN_ENTRIES = 24;
const MAX_ENTRIES = 500;
const MAX_SHORT = 40;

export function Json({ value, open = OPEN_DEPTH }: { value: unknown; open?: number }) {
  return (
    <div class="json">{isBranch(value) ? <Entries value={value} depth={0} open={open} /> : <Leaf value={value} />}</div>
  );
}

function Entries({ value, depth, open }: { value: object; depth: number; open: number }) {
  const entries = entriesOf(value);
  return (
    <>
      {entries.slice(0, MAX_ENTRIES).map(([key, item]) => (
        <Entry
          key={key}
          name={Array.isArray(value) ? "–" : `${visible(key)}:`}
          value={item}
          depth={depth}
          open={open}
        />
      ))}
      {entries.length > MAX_ENTRIES ? <div class="muted">{entries.length - MAX_ENTRIES} more</div> : null}
    </>
  );
}

function Entry({ name, value, depth, open }: { name: string; value: unknown; depth: number; open: number }) {
  if (!isBranch(value))
    return (
      <div>
        <span class="k">{name}</span> <Leaf value={value} />
      </div>
    );
  const count = entriesOf(value).length;
  return (
    <Fold
      isOpen={depth + 1 < open && count <= OPEN_ENTRIES}
      title={
        <>
          <span class="k">{name}</span> <span class="muted">{count}</span>
        </>
      }
    >
      {() => (
        <div class="inner">
          <Entries value={value} depth={depth + 1} open={open} />
        </div>
      )}
    </Fold>
  );
}

/** Renders a scalar, an empty object or list, or a short list of scalars. */
function Leaf({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <span class="n">null</span>;
  if (typeof value === "string") return <span class="s">"{visible(value)}"</span>;
  if (Array.isArray(value))
    return (
      <span>
        [
        {value.map((item, i) => (
          <span key={i}>
            {i > 0 ? ", " : ""}
            <Leaf value={item} />
          </span>
        ))}
        ]
      </span>
    );
  if (typeof value === "object") return <span>{"{}"}</span>;
  return <span class="n">{String(value)}</span>;
}

function isBranch(value: unknown): value is object {
  if (typeof value !== "object" || value === null || Object.keys(value).length === 0) return false;
  return !(Array.isArray(value) && value.length <= 8 && value.every(isShort));
}

function isShort(value: unknown): boolean {
  return (typeof value !== "object" || value === null) && String(value).length <= MAX_SHORT;
}

function entriesOf(value: object): [string, unknown][] {
  return Object.entries(value);
}
