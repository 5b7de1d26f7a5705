/**
 * Sends requests to the Kubernetes API server of a kubeconfig.
 */

import { Owner } from "../../base/owner.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { openFetcher } from "../../http/client/fetcher.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { readJson } from "../../json/read-json.ts";
import type { Cluster } from "../../kubernetes/kubeconfig.ts";
import { CliError, printable, type Terminal } from "../terminal/terminal.ts";

const ERROR_RESPONSE = peerInput("kubernetes-api/error");

const LIST_TIMEOUT_MS = 10_000;
const LIST = peerInput("kubernetes-api/response").upTo(16 * 1024 * 1024);

export async function requestCluster(
  cluster: Cluster,
  path: string,
  terminal: Terminal,
): Promise<{ status: number; body: Buffer }> {
  const fetcher = openFetcher(terminal.clock, EgressGuard.for("configuration"));
  try {
    return await fetcher.of(Owner.standalone)({
      url: `${cluster.server}${path}`,
      headers: cluster.headers,
      tls: cluster.tls,
      timeoutMs: LIST_TIMEOUT_MS,
      input: LIST,
    });
  } catch (error) {
    const { HTTPS_PROXY, https_proxy: lowerCase } = terminal.environment;
    const hint = HTTPS_PROXY || lowerCase ? " (HTTPS_PROXY is set, but gwctl does not use proxies)" : "";
    throw new CliError(`cannot reach the cluster at ${cluster.server}: ${(error as Error).message}${hint}`);
  } finally {
    fetcher.close();
  }
}

export function reasonOf(body: Buffer): string {
  try {
    const { message } = readJson(ERROR_RESPONSE, body) as { message?: unknown };
    if (typeof message === "string") return printable(message);
  } catch {
    // The body is not JSON, so its first line is used.
  }
  return printable(body.toString().slice(0, 200).split("\n", 1)[0] ?? "");
}
