/**
 * `gwctl proxy memory|tasks|limits` and `gwctl cel`: what the admin interface says, as it says it.
 */
import { ADMIN_PATHS } from "../admin/paths.ts";
import { openTarget, type TargetFlags } from "./target.ts";
import { printable, type Terminal } from "./terminal.ts";

export async function inspect(
  what: "memory" | "tasks" | "limits",
  name: string | undefined,
  flags: TargetFlags,
  terminal: Terminal,
): Promise<void> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    terminal.out(printable((await admin.get(ADMIN_PATHS[what])).body.toString()));
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
    const { value, error, clauses } = JSON.parse(answer.body.toString()) as {
      value?: unknown;
      error?: string;
      clauses: readonly { source: string; depth: number; value?: unknown; error?: string }[];
    };
    terminal.out(printable(`${error === undefined ? JSON.stringify(value) : `error: ${error}`}\n`));
    for (const clause of clauses.slice(1)) {
      const result = clause.error === undefined ? JSON.stringify(clause.value) : `error: ${clause.error}`;
      terminal.out(printable(`${"  ".repeat(clause.depth)}${clause.source} => ${result}\n`));
    }
  } finally {
    admin.close();
  }
}
