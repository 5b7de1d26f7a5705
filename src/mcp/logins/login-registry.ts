/**
 * All server logins of a gateway process, by their id: the connect pages and the admin interface find them here,
 * whichever backend they belong to.
 */
import type { Flow, Invitation, ServerLogin } from "./server-login.ts";
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

  /** The login that a browser comes back for; its state is used up. */
  async returned(state: string): Promise<{ login: ServerLogin; flow: Flow } | undefined> {
    const found = await this.#find(state, (vault) => vault.take<Flow>(`flow/${state}`));
    return found && { login: found.login, flow: found.invitation };
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
