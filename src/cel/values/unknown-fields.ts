/**
 * Fields that an expression reads and that no attribute ever has: `request.headerz`. They are not refused, because a
 * rule may ask with `has()` for what another version knows, but reading one always fails, and that should be said.
 */
import { ATTRIBUTES } from "./attributes.ts";
import { suggestion } from "./nearest-name.ts";

interface Known {
  readonly fields: Map<string, Known>;
  /** The operator or the peer chooses the names below it: claims, headers. */
  isOpen: boolean;
}

const KNOWN = knownFields();

/** One sentence for each; `paths` as an expression lists them. */
export function unknownFields(paths: Iterable<string>): string[] {
  return [...paths].flatMap((path) => {
    const [root = "", ...segments] = path.split(".");
    let known = KNOWN.get(root);
    let read = root;
    for (const segment of segments) {
      if (known === undefined || known.isOpen) return [];
      const next = known.fields.get(segment);
      // Below a plain value there is nothing to compare with: a list's index, a text that was parsed.
      if (next === undefined && known.fields.size === 0 && read !== root) return [];
      if (next === undefined)
        return [`${read} has no field ${JSON.stringify(segment)}${suggestion(segment, known.fields.keys())}`];
      known = next;
      read += `.${segment}`;
    }
    return [];
  });
}

function knownFields(): Map<string, Known> {
  const roots = new Map<string, Known>();
  for (const { name, fields } of ATTRIBUTES) {
    const root = entry(roots, name);
    for (const { path } of fields) {
      let at = root;
      for (const segment of path.split(".").slice(1)) {
        if (segment.startsWith("<")) at.isOpen = true;
        else at = entry(at.fields, segment);
      }
    }
  }
  return roots;
}

function entry(into: Map<string, Known>, name: string): Known {
  const known = into.get(name) ?? { fields: new Map(), isOpen: false };
  into.set(name, known);
  return known;
}
