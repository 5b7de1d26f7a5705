/**
 * Connects to the gateway that a command uses. The Kubernetes code is imported only for a gateway in a cluster.
 */
import { DEFAULT_ADMIN_PORT } from "../../admin/server/paths.ts";
import { createAdminClient } from "../instance/admin-client.ts";
import { adminAddressOf, chosenTarget, type Target, type TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Paint, paintOf, type Terminal, usageError } from "../terminal/terminal.ts";

export async function openTarget(
  instance: string | undefined,
  given: TargetFlags,
  terminal: Terminal,
): Promise<Target> {
  const { name, flags } = chosenTarget(instance, given, terminal.environment);
  const { host, port } = adminAddressOf("--admin-port", flags.adminPort ?? String(DEFAULT_ADMIN_PORT));
  if (name !== undefined) {
    if (flags.local) throw usageError("--local cannot be combined with an instance name");
    if (flags.adminSocket !== undefined)
      throw usageError("--admin-socket cannot be combined with an instance in a cluster");
    const { openClusterTarget } = await import("../cluster/cluster-target.ts");
    return openClusterTarget(name, port, flags, terminal);
  }
  const admin = createAdminClient(
    flags.adminSocket === undefined
      ? { display: `${host.includes(":") ? `[${host}]` : host}:${port}`, host, port }
      : { display: `unix:${flags.adminSocket}`, socketPath: flags.adminSocket },
  );
  return { admin, listenerPort: (port) => Promise.resolve(port) };
}

export interface ReportFlags extends TargetFlags {
  readonly output?: string;
}

interface ReportView<Report> {
  readonly path: string;
  readonly list: keyof Report & string;
  isEmpty(report: Report): boolean;
  nothing(report: Report): string;
  draw(report: Report, paint: Paint): string;
}

export async function showReport<Report extends object>(
  instance: string | undefined,
  flags: ReportFlags,
  terminal: Terminal,
  view: ReportView<Report>,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(instance, flags, terminal);
  try {
    const report = await admin.json<Report>(view.path, view.list);
    if (isData(format)) printData(report, format, terminal);
    else if (view.isEmpty(report)) terminal.err(`${view.nothing(report)}\n`);
    else terminal.out(view.draw(report, paintOf(terminal)));
  } finally {
    admin.close();
  }
}
