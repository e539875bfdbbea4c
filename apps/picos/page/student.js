// The student's page: from the owner pico to registration, to the section collection, to the sections.

const element = id => document.getElementById(id)
const say = text => { element('said').textContent = text }

async function get(path, query = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`)
  const answer = await response.json()
  if (!response.ok || answer?.error) throw new Error(answer?.detail ?? answer?.error ?? response.statusText)
  return answer
}

/** Sends an event; the options of the directive of this name, if there is one. */
async function directive(eci, event, query, name) {
  const { directives } = await get(`/sky/event/${eci}/student/${event}`, query)
  return directives.find(directive => directive.name === name)?.options
}

/** What was found on the way, for one student. */
let way = {}

/** The channel to the section collection, as the picos above it tell it. */
async function collection(student) {
  if (way.student !== student) {
    const owner = (await get('/api/owner-eci')).eci
    const registration = await directive(owner, 'registration/channel_needed', { student_id: student }, 'registration')
    const sections = await directive(registration.eci, 'section/needed', { student_id: student }, 'section_collection')
    way = { student, eci: sections.eci }
  }
  return way.eci
}

/** The channel to a section. */
async function channel(student, id) {
  const ready = await directive(await collection(student), 'section/needed', { student_id: student, section_id: id }, 'section_ready')
  if (!ready) throw new Error(`There is no section ${id}.`)
  return ready.eci
}

// --- a section and its seats, live ---

let shown

/** Shows a section, and its seats as they change. */
function show(id, eci) {
  shown?.changes.close()
  const changes = new EventSource(`/c/${eci}/query/app_section/sectionInfo`)
  shown = { id, eci, changes }
  // Of many changes at once the last is looked at.
  let asking = false, again = false
  const look = async () => {
    if (asking) { again = true; return }
    asking = true
    do {
      again = false
      try {
        const info = await get(`/sky/cloud/${eci}/app_section/sectionInfo`)
        if (shown.eci === eci) seats(id, info)
      } catch (error) { say(error.message) }
    } while (again)
    asking = false
  }
  changes.onopen = look
  changes.onmessage = look
}

function seats(id, { capacity, taken, remaining, roster }) {
  element('section').hidden = false
  element('name').textContent = id
  element('taken').max = Math.max(capacity, 1)
  element('taken').value = taken
  element('seats').textContent = `${taken} of ${capacity} seats taken, ${remaining} left`
  element('join').disabled = remaining <= 0 || roster.includes(element('student').value.trim())
}

// --- where the student is enrolled, as this browser remembers it ---

const key = student => `enrolled ${student}`
const enrolled = student => JSON.parse(localStorage.getItem(key(student)) ?? '[]')

function remember(student, sections) {
  localStorage.setItem(key(student), JSON.stringify(sections))
  list(student)
}

function list(student) {
  element('mine').hidden = enrolled(student).length === 0
  element('enrolled').replaceChildren(...enrolled(student).map(id => item(id, 'Drop', () => drop(student, id))))
}

function item(text, action, act) {
  const [item, name, button] = ['li', 'span', 'button'].map(tag => document.createElement(tag))
  name.textContent = text
  button.textContent = action
  button.type = 'button'
  button.setAttribute('aria-label', `${action} ${text}`)
  button.addEventListener('click', () => act().catch(error => say(error.message)))
  item.append(name, button)
  return item
}

// --- what a student does ---

async function search(student, text) {
  const found = await get(`/sky/cloud/${await collection(student)}/app_section_collection/search`, { text, limit: 20 })
  const look = async id => show(id, await channel(student, id))
  element('found').replaceChildren(...found.map(id => item(id, 'View', () => look(id))))
  say(found.length ? '' : 'No section is called so.')
}

async function join(student) {
  const { id, eci } = shown
  const granted = await directive(eci, 'section/add_request', { student_id: student }, 'request_granted')
  if (!granted) return say(`There is no seat left in ${id}.`)
  say(`You have a seat in ${id}.`)
  remember(student, [...new Set([...enrolled(student), id])])
}

async function drop(student, id) {
  await directive(await channel(student, id), 'section/drop_request', { student_id: student }, 'section')
  say(`You gave back your seat in ${id}.`)
  remember(student, enrolled(student).filter(other => other !== id))
}

const student = () => element('student').value.trim()
const guarded = act => event => {
  event.preventDefault()
  act().catch(error => say(error.message))
}
element('search').addEventListener('submit', guarded(() => search(student(), element('text').value.trim())))
element('join').addEventListener('click', guarded(() => join(student())))
element('student').addEventListener('change', () => list(student()))
