/**
 * `gwctl upgrade`: lets a running gateway start the program again, as it is on disk now, and hand over to it.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

/** The gateway itself gives up after 60 s. */
const PATIENCE_MS = 70_000;

export async function upgrade(name: string | undefined, flags: TargetFlags, terminal: Terminal): Promise<void> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const answer = await admin.post(ADMIN_PATHS.upgrade, { what: "upgrade", timeoutMs: PATIENCE_MS });
    terminal.out(printable(answer.body.toString()));
  } finally {
    admin.close();
  }
}
