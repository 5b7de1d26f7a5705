/**
 * The state of an MCP server, as its backend reports it in `/debug/tasks`.
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

/** The field of a `/debug/tasks` entry that is read here. */
export interface Reported {
  readonly detail?: Readonly<Record<string, unknown>>;
}

type Fields = Readonly<Record<string, unknown>>;

export function targetState(backend: Reported | undefined, target: string): TargetState {
  const server = fieldsOf(backend?.detail?.servers).find((one) => one.target === target);
  return {
    up: typeof server?.sessions === "number" ? server.sessions : 0,
    isFailing: server?.state === "failing",
    lastError: textOf(server?.lastError),
    agoMs: typeof server?.agoMs === "number" ? server.agoMs : undefined,
    stderr: linesOf(server?.stderr),
  };
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
