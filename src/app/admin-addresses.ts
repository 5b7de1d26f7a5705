/**
 * Where the process itself listens: the admin interface, and the address for scrapers if one is configured. An address
 * that cannot be bound keeps the gateway from starting, and leaves none of them open.
 */
import { type AdminAddress, parseAdminAddress } from "../admin/server/address.ts";
import type { AdminEndpoint } from "../admin/server/endpoint.ts";
import type { AdminServer } from "../admin/server/server.ts";
import { explainBindError } from "../pipeline/listen/listeners.ts";
import type { Loaded } from "./config-loader.ts";
import { StartError } from "./start-error.ts";

type Audience = "operators" | "scrapers";

export interface AdminAddressParts {
  readonly config: Pick<Loaded, "process" | "processWrittenAt">;
  /** Where the admin interface binds when the configuration does not say. */
  readonly defaultAdminAddr: string | undefined;
  readonly endpoints: readonly AdminEndpoint[];
  readonly statistics: readonly AdminEndpoint[];
  open(address: AdminAddress, endpoints: readonly AdminEndpoint[], audience: Audience): Promise<AdminServer>;
}

export interface AdminAddresses {
  /** Undefined when the admin interface is off. */
  readonly adminUrl: string | undefined;
  readonly ports: { readonly admin: number | undefined; readonly stats: number | undefined };
  close(): void;
}

export async function openAdminAddresses(parts: AdminAddressParts): Promise<AdminAddresses> {
  const { adminAddr = parts.defaultAdminAddr, statsAddr } = parts.config.process;
  const openAt = async (
    field: "adminAddr" | "statsAddr",
    text: string | undefined,
    list: readonly AdminEndpoint[],
    audience: Audience,
  ): Promise<AdminServer> => {
    try {
      return await parts.open(parseAdminAddress(text), list, audience);
    } catch (error) {
      const at = parts.config.processWrittenAt(field);
      throw new StartError([`${at}: cannot listen on ${text ?? "loopback port 15000"}: ${explainBindError(error)}`]);
    }
  };
  const admin = await openAt("adminAddr", adminAddr, parts.endpoints, "operators");
  try {
    const stats =
      statsAddr === undefined ? undefined : await openAt("statsAddr", statsAddr, parts.statistics, "scrapers");
    return {
      adminUrl: admin.url,
      ports: { admin: admin.port, stats: stats?.port },
      close() {
        admin.close();
        stats?.close();
      },
    };
  } catch (error) {
    admin.close();
    throw error;
  }
}
