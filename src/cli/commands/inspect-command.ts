/**
 * `gwctl proxy memory|tasks|limits` and `gwctl cel`: what the admin interface says, as it says it.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError } from "../terminal/cli-error.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

/** A field that each answer has. */
const FIELDS = { memory: "process", tasks: "tasks", limits: "rules" } as const;

export async function inspect(
  what: keyof typeof FIELDS,
  name: string | undefined,
  flags: TargetFlags,
  terminal: Terminal,
): Promise<void> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const answer = await admin.json<Record<string, unknown>>(ADMIN_PATHS[what], FIELDS[what]);
    terminal.out(printable(`${JSON.stringify(answer, null, 2)}\n`));
  } finally {
    admin.close();
  }
}

export async function cel(
  expression: string,
  flags: TargetFlags & { readonly request?: string },
  terminal: Terminal,
): Promise<void> {
  const { admin } = await openTarget(undefined, flags, terminal);
  const question = { expression, ...(flags.request === undefined ? {} : { requestId: flags.request }) };
  try {
    const answer = await admin.post(ADMIN_PATHS.cel, { body: JSON.stringify(question), what: "expression" });
    const { value, error, clauses } = judgement(answer.body.toString(), admin.display);
    terminal.out(printable(`${error === undefined ? JSON.stringify(value) : `error: ${error}`}\n`));
    for (const clause of clauses.slice(1)) {
      const result = clause.error === undefined ? JSON.stringify(clause.value) : `error: ${clause.error}`;
      terminal.out(printable(`${"  ".repeat(clause.depth)}${clause.source} => ${result}\n`));
    }
  } finally {
    admin.close();
  }
}

interface Judgement {
  readonly value?: unknown;
  readonly error?: string;
  readonly clauses: readonly {
    readonly source: string;
    readonly depth: number;
    readonly value?: unknown;
    readonly error?: string;
  }[];
}

function judgement(text: string, display: string): Judgement {
  try {
    const value = JSON.parse(text) as Judgement | null;
    if (Array.isArray(value?.clauses)) return value as Judgement;
  } catch {
    // Said below.
  }
  throw new CliError(`${display} did not evaluate the expression: is that a gateway's admin interface?`);
}
