/**
 * Draws a flame graph. The width of a frame is its share of the total, and a click zooms into it.
 */
import { useState } from "preact/hooks";
import { bytesText, durationText, percentText } from "../../../../src/base/format.ts";
import { visible } from "../../parts/format.ts";
import type { Frame, Profile } from "./pprof.ts";

const ROW_HEIGHT = 18;
/** Narrower frames cannot be read or clicked, so they are omitted. */
const MIN_SHARE = 0.002;
const MAX_DEPTH = 48;
const TOP = 12;

const LEGEND = [
  ["own-1", "the gateway, a color per file"],
  ["package", "packages"],
  ["node", "Node.js"],
  ["other", "collector and system"],
] as const;

interface Placed {
  readonly frame: Frame;
  readonly left: number;
  readonly share: number;
  readonly depth: number;
}

export function Flame({ profile }: { profile: Profile }) {
  const [focus, setFocus] = useState<Frame>(profile.root);
  const placed = place(focus);
  const height = (Math.max(0, ...placed.map(({ depth }) => depth)) + 1) * ROW_HEIGHT;
  if (profile.root.total === 0) return <p class="muted">No samples: the gateway was idle.</p>;
  return (
    <div class="stack">
      <div class="flame" style={{ height: `${height}px` }}>
        {placed.map(({ frame, left, share, depth }) => (
          <button
            key={`${depth} ${left} ${frame.name}`}
            type="button"
            class={`cell ${colorOf(frame)}`}
            style={{ left: `${left * 100}%`, width: `${share * 100}%`, top: `${depth * ROW_HEIGHT}px` }}
            title={`${visible(frame.name)}\n${visible(frame.file)}\n${amountText(frame.total, profile.unit)}, ${percentText(frame.total / profile.root.total)}`}
            onClick={() => setFocus(frame === focus ? profile.root : frame)}
          >
            {share > 0.03 ? visible(frame.name) : ""}
          </button>
        ))}
      </div>
      <ul class="legend">
        {LEGEND.map(([kind, text]) => (
          <li key={kind}>
            <span class={`swatch cell ${kind}`} aria-hidden="true" /> {text}
          </li>
        ))}
      </ul>
      {focus === profile.root ? null : (
        <button type="button" class="button" onClick={() => setFocus(profile.root)}>
          Reset zoom
        </button>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">Function</th>
            <th scope="col">File</th>
            <th scope="col" class="number">
              Self
            </th>
            <th scope="col" class="number">
              Share
            </th>
          </tr>
        </thead>
        <tbody>
          {heaviest(profile.root).map(({ name, file, self }) => (
            <tr key={`${name} ${file}`}>
              <td class="mono">{visible(name)}</td>
              <td class="mono muted wrap">{visible(file)}</td>
              <td class="number">{amountText(self, profile.unit)}</td>
              <td class="number">{percentText(self / profile.root.total)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function place(root: Frame): Placed[] {
  const placed: Placed[] = [];
  const walk = (frame: Frame, left: number, depth: number): void => {
    const share = frame.total / root.total;
    if (!(share >= MIN_SHARE) || depth > MAX_DEPTH) return;
    placed.push({ frame, left, share, depth });
    let at = left;
    for (const child of [...frame.children.values()].sort((a, b) => b.total - a.total)) {
      walk(child, at, depth + 1);
      at += child.total / root.total;
    }
  };
  walk(root, 0, 0);
  return placed;
}

function heaviest(root: Frame): { name: string; file: string; self: number }[] {
  const sums = new Map<string, { name: string; file: string; self: number }>();
  const walk = (frame: Frame): void => {
    const key = `${frame.name}\n${frame.file}`;
    const known = sums.get(key) ?? { name: frame.name, file: shortFile(frame.file), self: 0 };
    known.self += frame.self;
    sums.set(key, known);
    for (const child of frame.children.values()) walk(child);
  };
  walk(root);
  return [...sums.values()]
    .filter(({ self }) => self > 0)
    .sort((a, b) => b.self - a.self)
    .slice(0, TOP);
}

function shortFile(file: string): string {
  return file.split("/").slice(-2).join("/");
}

/** The color shows whether the function is part of the gateway, a package, Node.js, or the system. */
function colorOf({ file, name }: Frame): string {
  if (name === "(program)" || name === "(garbage collector)" || file === "") return "other";
  if (file.startsWith("node:")) return "node";
  if (file.includes("node_modules")) return "package";
  let sum = 0;
  for (const char of file) sum = (sum * 31 + (char.codePointAt(0) ?? 0)) % 3;
  return `own-${sum + 1}`;
}

function amountText(value: number, unit: string): string {
  if (unit === "nanoseconds") return durationText(value / 1e6);
  return unit === "bytes" ? bytesText(value) : String(value);
}
