/**
 * How names of several targets live side by side: tools and prompts as `<target>_<name>`, resources as
 * `<target>+<uri>`. The way back needs no table, because target names are known and none begins another.
 */
import type { NamedKind } from "../protocol/access.ts";

export interface Names {
  /** The targets whose names live side by side. */
  readonly targets: readonly string[];
  /** Whether names carry their target at all. */
  readonly isPrefixed: boolean;
  /** The client's name for what the target calls `name`. */
  outward(kind: NamedKind, target: string, name: string): string;
  /** The target and its own name; undefined if no target is meant. */
  inward(kind: NamedKind, name: string): { readonly target: string; readonly name: string } | undefined;
}

/** Hosts recognise user interface resources by this scheme, so it stays in front. */
const UI_SCHEME = "ui://";

export function createNames(targets: readonly string[], mode: "conditional" | "always" | "never"): Names {
  const isPrefixed = mode === "always" || (mode === "conditional" && targets.length > 1);
  if (!isPrefixed) return { targets, isPrefixed, outward: (_kind, _target, name) => name, inward: () => undefined };
  const strip = (name: string, separator: string): { target: string; name: string } | undefined => {
    const target = targets.find((one) => name.startsWith(one + separator));
    return target === undefined ? undefined : { target, name: name.slice(target.length + separator.length) };
  };
  return {
    targets,
    isPrefixed,
    outward(kind, target, name) {
      if (kind !== "resource") return `${target}_${name}`;
      return name.startsWith(UI_SCHEME) ? `${UI_SCHEME}${target}+${name.slice(UI_SCHEME.length)}` : `${target}+${name}`;
    },
    inward(kind, name) {
      if (kind !== "resource") return strip(name, "_");
      if (!name.startsWith(UI_SCHEME)) return strip(name, "+");
      const found = strip(name.slice(UI_SCHEME.length), "+");
      return found && { target: found.target, name: UI_SCHEME + found.name };
    },
  };
}
