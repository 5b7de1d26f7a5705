/**
 * `gwctl proxy memory|tasks|limits`, `gwctl budgets` and `gwctl cel`: what the admin interface says, as a table or as JSON.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, usageError } from "../terminal/cli-error.ts";
import { paintOf } from "../terminal/paint.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { budgetsText } from "../views/budgets-view.ts";
import { listOf } from "../views/fields.ts";
import { limitsText } from "../views/limits-view.ts";
import { memoryText } from "../views/memory-view.ts";
import { tasksText } from "../views/tasks-view.ts";
import { openTarget } from "./open-target.ts";

/** A field that each answer has. */
const FIELDS = { memory: "process", tasks: "tasks", limits: "rules", budgets: "budgets" } as const;

export interface InspectFlags extends TargetFlags {
  readonly output?: string;
  /** Of `limits` and `budgets`: only those with this in their key. */
  readonly key?: string;
}

export async function inspect(
  what: keyof typeof FIELDS,
  name: string | undefined,
  flags: InspectFlags,
  terminal: Terminal,
): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const query = flags.key === undefined ? "" : `?${new URLSearchParams({ key: flags.key })}`;
    const answer = await admin.json<Record<string, unknown>>(`${ADMIN_PATHS[what]}${query}`, FIELDS[what]);
    const paint = paintOf(terminal);
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(answer, null, 2)}\n`));
    else if (what === "memory") terminal.out(memoryText(answer, paint));
    else if (what === "tasks") terminal.out(tasksText(answer, paint));
    else if (what === "budgets" && listOf(answer.budgets).length === 0) terminal.err("no budgets\n");
    else if (what === "budgets") terminal.out(budgetsText(listOf(answer.budgets), paint));
    else if (listOf(answer.rules).length === 0) terminal.err("no rate limits\n");
    else terminal.out(limitsText(listOf(answer.rules), paint));
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
