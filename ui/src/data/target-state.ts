/**
 * The state of an MCP server, from the tasks below its backend: up or down in the sessions that use it, its last
 * failure, and its last stderr output. If no session has reached a server, only its failure is available.
 */

export interface TargetState {
  /** The number of sessions in which the server is up. */
  readonly up: number;
  readonly isFailing: boolean;
  /** The last error, including one that is over. */
  readonly lastError: string;
  readonly agoMs: number | undefined;
  readonly stderr: readonly string[];
}

/** The fields of a `/debug/tasks` entry that are read here. */
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

/** Returns the connections to the target, without slots of shared servers, which have no state. */
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
