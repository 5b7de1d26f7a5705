/**
 * Opens the admin address and, if configured, the stats address. If one cannot be bound, the start fails and both are
 * closed.
 */
import { type AdminAddress, parseAdminAddress } from "../admin/server/address.ts";
import type { AdminEndpoint } from "../admin/server/endpoint.ts";
import type { AdminServer } from "../admin/server/server.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import { explainBindError } from "../pipeline/listen/listeners.ts";
import { StartError } from "./start-error.ts";

type Audience = "operators" | "scrapers";

export interface AdminAddressParts {
  readonly config: Pick<ProcessSettings, "process" | "places">;
  readonly defaultAdminAddr: string | undefined;
  open(address: AdminAddress, endpoints: readonly AdminEndpoint[], audience: Audience): Promise<AdminServer>;
}

export interface AdminAddresses {
  open(endpoints: readonly AdminEndpoint[], statistics: readonly AdminEndpoint[]): Promise<string | undefined>;
  readonly ports: { readonly admin: number | undefined; readonly stats: number | undefined };
  /** The new process has taken the addresses over. */
  leave(): void;
  close(): void;
}

export function createAdminAddresses(parts: AdminAddressParts): AdminAddresses {
  const { adminAddr = parts.defaultAdminAddr, statsAddr } = parts.config.process;
  let admin: AdminServer | undefined;
  let stats: AdminServer | undefined;

  async function openAt(
    field: "adminAddr" | "statsAddr",
    text: string | undefined,
    list: readonly AdminEndpoint[],
    audience: Audience,
  ): Promise<AdminServer> {
    try {
      return await parts.open(parseAdminAddress(text), list, audience);
    } catch (error) {
      const at = parts.config.places[field];
      throw new StartError([`${at}: cannot listen on ${text ?? "loopback port 15000"}: ${explainBindError(error)}`]);
    }
  }

  function close(): void {
    admin?.close();
    stats?.close();
  }

  return {
    async open(endpoints, statistics) {
      admin = await openAt("adminAddr", adminAddr, endpoints, "operators");
      try {
        if (statsAddr !== undefined) stats = await openAt("statsAddr", statsAddr, statistics, "scrapers");
      } catch (error) {
        close();
        throw error;
      }
      return admin.url;
    },
    get ports() {
      return { admin: admin?.port, stats: stats?.port };
    },
    leave() {
      admin?.leave();
      stats?.leave();
    },
    close,
  };
}
