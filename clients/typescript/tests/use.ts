// A caller of what `throng client typescript` writes for the bank. A line that says `expect-error` fails to compile where the types let it pass.

import type { AccountEventDeposited, Bank } from './bank.js'
import { Client, Problem } from './throng.js'

declare const process: { env: Record<string, string>; exit(code: number): never }

const bank = new Client<Bank>(process.env.THRONG_URL!)
await bank.command('account', 'use', 'open')
const balance = await bank.command('account', 'use', 'deposit', { cents: 500 })
const cents: number | bigint = balance.cents
// @ts-expect-error the command has no such field
void (() => bank.command('account', 'use', 'deposit', { euros: 5 }))
// @ts-expect-error there is no such command
void (() => bank.command('account', 'use', 'despoil', {}))
try {
  await bank.command('account', 'use', 'withdraw', { cents: 501 })
} catch (error) {
  if (!(error instanceof Problem)) throw error
  const rejection = bank.rejection('account', error)
  if (typeof rejection === 'object') console.log(`there are ${rejection.balance_too_low.cents} of ${cents}`)
  // @ts-expect-error an account has no such rejection
  if (rejection === 'is_haunted') process.exit(1)
}
for await (const event of bank.events('account', 'use')) {
  // The name tells which event it is.
  if (event.name === 'opened') continue
  if (event.name === 'deposited') {
    const payload: AccountEventDeposited['payload'] = event.payload
    process.exit(payload.cents === 500 ? 0 : 1)
  }
}
