ruleset app_section {
  meta {
    name "Section"
    description << One section of a course: its seats, and who sits on them. >>
    shares sectionInfo, inRoster, channel
  }
  global {
    sectionInfo = function() {
      capacity = ent:capacity.defaultsTo(0)
      taken = ent:taken.defaultsTo(0)
      return {
        "section_id": ent:section_id,
        "capacity": capacity,
        "taken": taken,
        "remaining": capacity - taken,
        "roster": ent:roster.defaultsTo({}).keys()
      }
    }
    inRoster = function(student_id) {
      ent:roster.defaultsTo({}) >< student_id
    }
    channel = function() {
      ent:channel
    }
  }
  rule configure_empty {
    select when section config_empty
    always {
      ent:section_id := event:attr("section_id").defaultsTo(ent:section_id)
      ent:capacity := event:attr("capacity").as("Number")
      ent:taken := 0
      ent:roster := {}
    }
  }
  rule add {
    select when section add_request or section add
    pre {
      student = event:attr("student_id").as("String")
      is_free = ent:taken.defaultsTo(0) < ent:capacity.defaultsTo(0)
    }
    if is_free && not inRoster(student) then
      send_directive("request_granted", {"student_id": student})
    fired {
      ent:roster{[student]} := true
      ent:taken := ent:taken.defaultsTo(0) + 1
    }
  }
  rule drop {
    select when section drop_request or section drop
    pre { student = event:attr("student_id").as("String") }
    if inRoster(student) then noop()
    fired {
      clear ent:roster{[student]}
      ent:taken := ent:taken - 1
    }
  }
  rule tell {
    select when section config_empty or section add_request or section drop_request
    send_directive("section", {"section_info": sectionInfo()})
  }
  rule open_channel {
    select when section channel_needed
    if ent:channel.isnull() then ctx:newChannel(
      tags=["anonymous"],
      eventPolicy={"allow": [{"domain": "section", "name": "add_request"}, {"domain": "section", "name": "drop_request"}], "deny": []},
      queryPolicy={"allow": [{"rid": "app_section", "name": "*"}], "deny": []}
    ) setting(made)
    fired { ent:channel := made{"id"} }
  }
}
