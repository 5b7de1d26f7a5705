/**
 * `gwctl gateway list`: lists the Gateways of a cluster with their addresses and status.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { loadCluster } from "../../kubernetes/kubeconfig.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import { CliError, paintOf, type Terminal } from "../terminal/terminal.ts";
import { reasonOf, requestCluster } from "./cluster-request.ts";

const LIST = peerInput("kubernetes-api/response");

export interface GatewayListFlags extends TargetFlags {
  readonly allNamespaces?: boolean;
  readonly output?: string;
}

interface Gateway {
  readonly metadata?: { readonly name?: string; readonly namespace?: string };
  readonly spec?: { readonly gatewayClassName?: string };
  readonly status?: {
    readonly addresses?: readonly { readonly value?: string }[];
    readonly conditions?: readonly { readonly type?: string; readonly status?: string; readonly reason?: string }[];
    readonly listeners?: readonly { readonly name?: string; readonly attachedRoutes?: number }[];
  };
}

export async function listGateways(flags: GatewayListFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const cluster = await loadCluster(flags, terminal).catch((error: Error) => {
    throw new CliError(error.message);
  });
  const within = flags.allNamespaces ? "" : `/namespaces/${encodeURIComponent(cluster.namespace)}`;
  const path = `/apis/gateway.networking.k8s.io/v1${within}/gateways`;
  const { status, body } = await requestCluster(cluster, path, terminal);
  if (status === 404) throw new CliError("the cluster has no Gateway API: install its definitions first");
  if (status !== 200) throw new CliError(`the cluster responded with ${status}: ${reasonOf(body)}`);
  const items = itemsOf(body);
  if (isData(format)) printData(items, format, terminal);
  else if (items.length === 0)
    terminal.err(`no Gateways in ${flags.allNamespaces ? "the cluster" : `namespace ${cluster.namespace}`}\n`);
  else {
    const head = ["NAMESPACE", "NAME", "CLASS", "ADDRESS", "PROGRAMMED", "ROUTES"];
    terminal.out(table([head, ...items.map(row)], { paint: paintOf(terminal), maxLastChars: MESSAGE_CHARS }));
  }
}

function itemsOf(body: Buffer): Gateway[] {
  try {
    const { items } = readJson(LIST, body) as { items?: unknown };
    if (Array.isArray(items)) return items as Gateway[];
  } catch {
    // Invalid JSON is reported below.
  }
  throw new CliError("the response of the cluster is not a list of Gateways");
}

function row({ metadata, spec, status }: Gateway): string[] {
  const programmed = status?.conditions?.find(({ type }) => type === "Programmed");
  const isTrue = programmed?.status === "True";
  const routes = (status?.listeners ?? []).map(({ name, attachedRoutes }) => `${name}: ${attachedRoutes ?? 0}`);
  return [
    metadata?.namespace ?? "",
    metadata?.name ?? "",
    spec?.gatewayClassName ?? "",
    (status?.addresses ?? []).map(({ value }) => value ?? "").join(", ") || "-",
    programmed === undefined ? "-" : isTrue ? "True" : `False (${programmed.reason ?? ""})`,
    routes.join(", ") || "-",
  ];
}
