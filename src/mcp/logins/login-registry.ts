/**
 * All server logins of a gateway process, by their id: the connect pages and the admin interface find them here,
 * whichever backend they belong to.
 */
import { type Flow, type Invitation, isBegunBy, type ServerLogin } from "./server-login.ts";
import type { Vault } from "./vault.ts";

export class LoginRegistry {
  readonly #logins = new Map<string, ServerLogin>();
  readonly #vaults = new Map<string, Vault>();

  add(login: ServerLogin, vault: Vault): void {
    this.#logins.set(login.id, login);
    this.#vaults.set(login.id, vault);
  }

  remove(login: ServerLogin): void {
    if (this.#logins.get(login.id) !== login) return;
    this.#logins.delete(login.id);
    this.#vaults.delete(login.id);
  }

  get all(): readonly ServerLogin[] {
    return [...this.#logins.values()];
  }

  /** Whom a ticket invites where; it can still be used. */
  invitation(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    return this.#find(ticket, (vault) => vault.get<Invitation>(`invitation/${ticket}`));
  }

  /** The same, and the ticket is used up. */
  accept(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    return this.#find(ticket, (vault) => vault.take<Invitation>(`invitation/${ticket}`));
  }

  /**
   * The login that a browser comes back for. `secretsFor` returns those that the browser has for this state and login; without the
   * right one the state stays valid for the browser that began the login. Undefined if the state is unknown or was used.
   */
  async returned(
    state: string,
    secretsFor: (login: ServerLogin) => readonly string[],
  ): Promise<{ login: ServerLogin; flow: Flow } | "other browser" | undefined> {
    const found = await this.#find(state, (vault) => vault.get<Flow>(`flow/${state}`));
    if (found === undefined) return undefined;
    if (!isBegunBy(found.invitation, secretsFor(found.login))) return "other browser";
    const taken = await this.#find(state, (vault) => vault.take<Flow>(`flow/${state}`));
    return taken && { login: taken.login, flow: taken.invitation };
  }

  async #find<Value extends Invitation>(
    secret: string,
    read: (vault: Vault) => Promise<Value | undefined>,
  ): Promise<{ login: ServerLogin; invitation: Value } | undefined> {
    if (!/^[\w-]{20,64}$/.test(secret)) return undefined;
    for (const vault of new Set(this.#vaults.values())) {
      const invitation = await read(vault);
      const login = invitation && this.#logins.get(invitation.login);
      if (login) return { login, invitation };
    }
    return undefined;
  }
}
