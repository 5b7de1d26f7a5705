/**
 * How an MCP server fares, from what lives below its backend: up or down in the sessions that use it, why it failed the
 * last time, and what it last wrote. A server that no session ever reached is known by its failure alone.
 */

export interface TargetState {
  /** Sessions in which it is up. */
  readonly up: number;
  readonly isFailing: boolean;
  /** Also of a failure that is over. */
  readonly lastError: string;
  readonly agoMs: number | undefined;
  readonly stderr: readonly string[];
}

/** A task of `/debug/tasks`, as far as it is read here. */
export interface Reported {
  readonly detail?: Readonly<Record<string, unknown>>;
  readonly children?: readonly Reported[];
}

type Fields = Readonly<Record<string, unknown>>;

export function targetState(backend: Reported | undefined, target: string): TargetState {
  const links = (backend?.children ?? []).flatMap((task) => linksOf(task, target));
  const up = links.filter(({ state }) => state === "up").length;
  const down = links.find(({ state }) => state === "down");
  const failure = fieldsOf(backend?.detail?.failures).find((one) => one.target === target);
  const isFailing = down !== undefined || (up === 0 && failure !== undefined && failure.isOver !== true);
  const source = down ?? failure;
  return {
    up,
    isFailing,
    lastError: textOf(down?.lastError ?? failure?.reason),
    agoMs: typeof failure?.agoMs === "number" ? failure.agoMs : undefined,
    stderr: linesOf(source?.stderr ?? links[0]?.stderr),
  };
}

/** Connections to the target; a seat at a server that sessions share has no state of its own. */
function linksOf({ detail = {}, children = [] }: Reported, target: string): Fields[] {
  return [detail, ...fieldsOf(detail.targets)]
    .filter((link) => link.target === target && typeof link.state === "string")
    .concat(children.flatMap((child) => linksOf(child, target)));
}

function fieldsOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}

function linesOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(textOf) : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
